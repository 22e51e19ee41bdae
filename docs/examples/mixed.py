"""A layout of your own: one actor has its policy inside, the other asks a policy worker in a separate process."""

import srl


def mixed(experiment, sizes):
    g = srl.GraphBuilder()
    samples, params = g.sample(), g.param()
    own, asked = g.infer(name="own"), g.infer(name="asked")
    half = {"envs": sizes.envs // 2, "steps": sizes.steps, "samples": samples}
    alone = g.node("actor", "alone", infer=own, **half)
    g.node("policy", "inside", inside=alone, asks=own, params=params)
    g.node("actor", "asking", infer=asked, **half)
    g.node("policy", "beside", asks=asked, params=params)
    g.node("trainer", samples=samples, params=params, slabs=2, staleness=sizes.staleness, device=sizes.device)
    return g
