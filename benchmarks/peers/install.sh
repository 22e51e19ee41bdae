#!/usr/bin/env bash
# Make a venv for each peer below the folder $1: benchmarks/peers/install.sh ~/peers
set -euo pipefail
folder=${1:?where to put the venvs}
for peer in sb3 sbx cleanrl sample_factory; do [ -d "$folder/$peer" ] || python3 -m venv "$folder/$peer"; done
"$folder/sb3/bin/pip" install -q torch==2.13.0 'stable-baselines3==2.9.*' 'gymnasium[mujoco]' ale-py opencv-python-headless
"$folder/sbx/bin/pip" install -q torch==2.13.0 'sbx-rl==0.28.*' 'gymnasium[mujoco]'
"$folder/cleanrl/bin/pip" install -q torch==2.13.0 envpool gymnasium numpy
"$folder/sample_factory/bin/pip" install -q torch==2.13.0 sample-factory==2.1.1 'setuptools<80' ale-py
