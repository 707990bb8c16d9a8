"""Last stage: the trained pair as checkpoints that SGLang, vLLM and Hugging Face transformers load.

Reads `target.pt`, `draft.pt` and `tokenizer.json` of the work folder; writes `target/` and `draft/`.
"""

import argparse
import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file

from tinylm import Cfg

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'assistant' %}<|assistant|>{{ m['content'] }}"
    "{{ eos_token }}{% else %}<|user|>{{ m['content'] }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SPECIAL = {"bos_token": "<|bos|>", "eos_token": "<|eos|>", "pad_token": "<|pad|>"}
IDS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}


def _write(value, path):
    path.write_text(json.dumps(value, indent=2), encoding="utf-8")


def _config(c, architecture, **more):
    return {
        "architectures": [architecture],
        "model_type": "llama",
        "vocab_size": c.vocab,
        "hidden_size": c.hidden,
        "intermediate_size": c.inter,
        "num_attention_heads": c.heads,
        "num_key_value_heads": c.kv,
        "head_dim": c.hd,
        "hidden_act": "silu",
        "max_position_embeddings": c.max_pos,
        "rms_norm_eps": c.eps,
        "rope_theta": c.theta,
        "rope_scaling": None,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "mlp_bias": False,
        "initializer_range": 0.02,
        **IDS,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        **more,
    }


def _tensors(state, left_out=""):
    return {
        name: (value.to(torch.bfloat16) if value.is_floating_point() else value).contiguous()
        for name, value in state.items()
        if not left_out or left_out not in name
    }


def export(work, out):
    trained = torch.load(work / "target.pt")
    c, target, draft = Cfg(**trained["cfg"]), out / "target", out / "draft"
    for folder in (target, draft):
        folder.mkdir(parents=True, exist_ok=True)
    save_file(_tensors(trained["sd"]), target / "model.safetensors", metadata={"format": "pt"})
    _write(_config(c, "LlamaForCausalLM", num_hidden_layers=c.layers), target / "config.json")
    _write({**IDS, "do_sample": False}, target / "generation_config.json")
    tokenizer = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **SPECIAL,
        "additional_special_tokens": ["<|user|>", "<|assistant|>"],
        "clean_up_tokenization_spaces": False,
        "model_max_length": c.max_pos,
        "chat_template": CHAT_TEMPLATE,
    }
    _write(tokenizer, target / "tokenizer_config.json")
    _write(SPECIAL, target / "special_tokens_map.json")
    shutil.copyfile(work / "tokenizer.json", target / "tokenizer.json")
    # Without the embedding: it is the target's, and engines share it.
    state = _tensors(torch.load(work / "draft.pt")["sd"], left_out="embed")
    save_file(state, draft / "model.safetensors", metadata={"format": "pt"})
    own = {"num_hidden_layers": 1, "draft_vocab_size": c.draft_vocab, "target_hidden_size": c.hidden}
    _write(_config(c, "LlamaForCausalLMEagle3", **own), draft / "config.json")
    print(f"wrote {target} and {draft}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True, help="folder that the stages before wrote")
    parser.add_argument("--out", type=Path, help="folder to write (default: the work folder)")
    options = parser.parse_args()
    export(options.work, options.out or options.work)
