// Words for people: what causes, roles, streams and figures mean.

const CAUSES = {
  busy: ["busy", "working"],
  slabs: ["slabs", "waits for experience to learn from"],
  batches: ["slabs", "waits for experience to learn from"],
  answers: ["answers", "waits for the policy to choose actions"],
  parameters: ["parameters", "waits for the first weights"],
  "newer parameters": ["parameters", "waits for newer weights"],
  "past version": ["parameters", "waits for an older policy to play against"],
  credit: ["credit", "held back until the trainer wants more, so that data stays fresh"],
  "free slot": ["slot", "held back until memory is free"],
  questions: ["questions", "no one asks"],
  "env steps": ["turn", "not its turn yet"],
  "other trainers": ["peers", "waits for the other trainers"],
};
const causeColour = what => `var(--${(CAUSES[what] || ["other"])[0]})`;
const causeMeaning = what => (CAUSES[what] || ["other", `waits for ${what}`])[1];

const ROLES = {
  actor: "plays the environment",
  policy: "chooses the actions",
  trainer: "learns from experience",
  evaluator: "tests the policy",
  replay: "keeps experience",
  buffer: "collects experience",
  league: "picks past opponents",
  viewer: "shows the policy playing",
};

const STREAMS = { sample: "experience", infer: "questions", param: "weights", sum: "gradients" };
const STREAM_MEANING = {
  sample: "trajectories of steps (slabs), from the actors to the trainer",
  infer: "observations sent to the policy, and the actions it returns",
  param: "new weights of the policy, after each update",
  sum: "what the trainers of one policy add up, between several hosts",
};

// pattern -> [group, title, what it means]; {1} is the first part that the pattern caught
const FIGURES = [
  [/^episode\/return$/, "Learning", "Return in training", "mean of the last 100 episodes; higher is better"],
  [/^episode\/return\/(.+)$/, "Learning", "Return of {1}", "mean of the last 100 episodes; higher is better"],
  [/^eval\/return(.*)$/, "Learning", "Return in evaluations{1}", "the newest policy, in episodes that are not trained on"],
  [/^(eval_sampled|cross)\/(.*return.*)$/, "Learning", "{1}: {2}", "in evaluations"],
  [/^episode\/length$/, "Learning", "Length of episodes", "steps, mean of the last 100 episodes"],
  [/^episode\/(.+)$/, "Learning", "{1}", "mean of the last 100 episodes"],
  [/^(eval|eval_sampled|cross)\/(.+)$/, "Evaluations", "{1}: {2}", ""],
  [/^train\/(?:(.+)\/)?policy_loss$/, "Algorithm", "Policy loss {1}", "what the policy minimises; its sign says little"],
  [/^train\/(?:(.+)\/)?value_loss$/, "Algorithm", "Value loss {1}", "error of the predicted returns"],
  [/^train\/(?:(.+)\/)?entropy$/, "Algorithm", "Entropy {1}", "how random the actions are; it falls as the policy decides"],
  [/^train\/(?:(.+)\/)?kl$/, "Algorithm", "KL {1}", "how far an update moves the policy; large values are risky"],
  [/^train\/(?:(.+)\/)?clip_fraction$/, "Algorithm", "Clipped {1}", "fraction of the rows whose update was limited"],
  [/^train\/(?:(.+)\/)?explained_variance$/, "Algorithm", "Explained variance {1}", "1: returns are predicted perfectly; 0: not at all"],
  [/^train\/(?:(.+)\/)?lr$/, "Algorithm", "Learning rate {1}", ""],
  [/^train\/(?:(.+)\/)?(\w*)_?loss$/, "Algorithm", "Loss {2} {1}", ""],
  [/^train\/(.+)$/, "Algorithm", "{1}", "reported by the algorithm"],
  [/^rate\/env$/, "Speed", "Env steps a second", "made by the actors"],
  [/^rate\/train$/, "Speed", "Env steps trained on a second", ""],
  [/^rate\/updates$/, "Speed", "Updates a second", "steps of the optimizer"],
  [/^rate\/frames$/, "Speed", "Rows a second through the network", "in training: batch size x updates"],
  [/^replay_ratio$/, "Speed", "Replay ratio", "how often each row is trained on"],
  [/^rate\/(.+)$/, "Speed", "{1}", "a second"],
  [/^lag\/updates$/, "Freshness", "Age of experience in updates", "between the policy that recorded a row and the one trained on it"],
  [/^lag\/ms$/, "Freshness", "Age of experience in ms", ""],
  [/^(lag|stream)\/(.+)$/, "Freshness", "{2}", ""],
  [/^lost\/(.+)$/, "Freshness", "Lost: {1}", "fraction of the records that were never taken"],
  [/^cpu\/(.+)$/, "Machine", "Cores of {1}", "all its processes together"],
  [/^rss\/(.+)$/, "Machine", "Memory of {1}", "bytes, all its processes together"],
];
const SHOWN_GROUPS = ["Learning", "Algorithm", "Speed", "Freshness", "Machine", "Evaluations", "More"];
const HIDDEN = /^(total\/|busy\/|waits\/|wall$|env_steps$|update$|nonfinite$)/;

function figureWords(name) {
  for (const [pattern, group, title, about] of FIGURES) {
    const found = pattern.exec(name);
    if (found) {
      const text = title.replace(/\{(\d)\}/g, (_, n) => (found[n] || "").replace(/^\//, " ").replaceAll("_", " ")).trim();
      return { group, title: text[0].toUpperCase() + text.slice(1), about };
    }
  }
  return { group: "More", title: name, about: "" };
}

const STATES = {
  running: ["running", "running"], created: ["starting", "running"], done: ["finished", "good"], solved: ["solved", "good"],
  interrupted: ["interrupted", "warn"], "stopped early": ["stopped early", ""], preempted: ["preempted", "warn"], died: ["died", "bad"], "worker failure": ["failed", "bad"],
  "user error": ["failed", "bad"], stalled: ["stalled", "bad"],
};
const stateWords = state => STATES[state] || [state || "unknown", "warn"];
