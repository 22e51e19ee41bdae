"""What comes with the package: kind -> name -> where it is. Strings only; add a line to add a thing."""

from __future__ import annotations

BUILTIN: dict[str, dict[str, str]] = {
    "env": {
        "gym": "srl.envs.gym:GymEnv",
        "gym_vector": "srl.envs.gym_vector:GymVectorEnv",
        "mujoco": "srl.envs.mujoco:MujocoEnv",
        "pettingzoo": "srl.envs.pettingzoo:PettingZooEnv",
        "fake": "srl.envs.fake:FakeEnv",
        "hide_and_seek": "srl.envs.hide_and_seek.env:HideAndSeekVec",
        "cartpole_positions": "srl.envs.hidden_velocity:CartPolePositions",
    },
    "policy": {
        "actor_critic": "srl.nets.actor_critic:ActorCritic",
        "recurrent": "srl.nets.recurrent:Recurrent",
        "entity": "srl.nets.entity:EntityPolicy",
    },
    "algorithm": {
        "ppo": "srl.algorithms.ppo:PPO",
        "impala": "srl.algorithms.impala:Impala",
    },
    "learner": {
        "single": "srl.learners.single:SingleLearner",
    },
    "worker": {
        "actor": "srl.workers.actor:ActorWorker",
        "policy": "srl.workers.policy:PolicyWorker",
        "trainer": "srl.workers.trainer:TrainerWorker",
        "buffer": "srl.workers.buffer:BufferWorker",
        "evaluator": "srl.workers.evaluator:EvaluatorWorker",
        "league": "srl.workers.league:LeagueWorker",
    },
    "layout": {
        "inline": "srl.graph.layouts:inline",
        "impala": "srl.graph.layouts:impala",
        "seed": "srl.graph.layouts:seed",
        "decoupled": "srl.graph.layouts:decoupled",
    },
    "transport": {
        "inproc": "srl.streams.inproc:InprocTransport",
        "shm": "srl.streams.shm:ShmTransport",
        "zmq": "srl.streams.zmq:ZmqTransport",
        "ipc": "srl.streams.zmq:IpcTransport",
    },
    "transform": {},
    "sink": {},
}
