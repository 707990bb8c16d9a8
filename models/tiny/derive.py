"""Derives drafts of the other speculative algorithms from the tiny target, so that no weights are stored.

Each draft is deterministic and small. A draft with a projection ("fc", "input_proj", "eh_proj") gets it in
closed form: a ridge regression from (embedding of the next token, hidden state of the target) to the next
hidden state of the target, over the texts of ``prompts-with-references.json``. Its decoder layer adds
nothing (output projections are zero), so that the fit is all there is. These drafts accept some of the
time, which is what a test of acceptance needs; none is a good draft.

Needs torch and safetensors, which the environment of the engine has:

    .envs/sglang/bin/python models/tiny/derive.py eagle build/eagle
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import load_file, save_file

TINY: Final = Path(__file__).resolve().parent
TARGET: Final = TINY / "target"
TOKENIZER: Final = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "generation_config.json",
)  # fmt: skip
RIDGE: Final = 1e-2
"""Weight of the penalty on the projection, against about 1,400 rows of unit scale."""

SHALLOW_LAYERS: Final = 6
"""Layers that the standalone draft keeps of the target's 8: fewer, and nearly nothing is accepted."""

MTP_LAYERS: Final = 3
"""Layers of the multi-layer draft, one for each draft step."""

STEP_LAYERS: Final = 45
"""Layers of a Step-3.5 target: SGLang 0.5.23 builds its draft layer as number 45, whatever is configured."""

Tensors = dict[str, torch.Tensor]


class Source:
    """The target's weights (float32), configuration, and its states over the reference texts."""

    def __init__(self) -> None:
        """Load the target and run it once."""
        self.weights: Tensors = {
            name: tensor.float() for name, tensor in load_file(TARGET / "model.safetensors").items()
        }
        self.config: dict[str, Any] = json.loads((TARGET / "config.json").read_text("utf-8"))
        self.embedding = self.weights["model.embed_tokens.weight"]
        self.head = self.weights["lm_head.weight"]
        self.norm = self.weights["model.norm.weight"]
        self.texts = self._run()

    @property
    def hidden(self) -> int:
        """Return the hidden size."""
        return int(self.config["hidden_size"])

    def _run(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return (token ids [T], hidden states after the final norm [T, H]) of each reference text."""
        sys.path.insert(0, str(TINY / "train"))
        import tinylm  # the training's own model; a script folder, no package

        c = self.config
        model = tinylm.Target(
            tinylm.Cfg(
                vocab=c["vocab_size"],
                hidden=c["hidden_size"],
                inter=c["intermediate_size"],
                layers=c["num_hidden_layers"],
                heads=c["num_attention_heads"],
                kv=c["num_key_value_heads"],
                hd=c["head_dim"],
                eps=c["rms_norm_eps"],
                theta=c["rope_theta"],
                max_pos=c["max_position_embeddings"],
            )
        )
        model.load_state_dict(self.weights)
        found = []
        references = json.loads((TINY / "prompts-with-references.json").read_text("utf-8"))
        with torch.no_grad():
            for one in references:
                ids = torch.tensor([*one["prompt"], *one["ref"]])
                _, _, states = model(ids[None], want_hidden=True)
                found.append((ids, states[0]))
        return found

    def fit(
        self,
        embeds: Callable[[torch.Tensor], torch.Tensor],
        states: Callable[[torch.Tensor], torch.Tensor],
        goal: Callable[[torch.Tensor], torch.Tensor],
        ahead: int = 1,
    ) -> torch.Tensor:
        """Return [H, 2H]: from (embedding of token t + ahead, state t + ahead - 1) to state t + ahead.

        The three callables say how the draft sees embeddings and states, and what it must give.
        """
        rows, goals = [], []
        for ids, hidden in self.texts:
            token = embeds(self.embedding[ids[ahead:]])
            fed = states(hidden[ahead - 1 : -1])
            rows.append(torch.cat([token, fed], -1))
            goals.append(goal(hidden[ahead:]))
        x, y = torch.cat(rows).double(), torch.cat(goals).double()
        gram = x.T @ x + RIDGE * torch.eye(x.shape[1], dtype=x.dtype)
        return torch.linalg.solve(gram, x.T @ y).T.float().contiguous()


def unit(x: torch.Tensor) -> torch.Tensor:
    """Return rows of root mean square 1, as an RMSNorm with weight 1 gives them."""
    return torch.nn.functional.rms_norm(x, (x.shape[-1],), eps=1e-5)


def standalone(source: Source) -> tuple[dict[str, Any], Tensors]:
    """Derive a small model of the same vocabulary: the target's first layers."""
    kept = {
        name: tensor
        for name, tensor in source.weights.items()
        if ".layers." not in name or int(name.split(".layers.")[1].split(".")[0]) < SHALLOW_LAYERS
    }
    return source.config | {"num_hidden_layers": SHALLOW_LAYERS}, kept


def eagle(source: Source) -> tuple[dict[str, Any], Tensors]:
    """Derive an EAGLE-1/2 draft (``LlamaForCausalLMEagle``): ``fc`` [H, 2H] on (embedding, state).

    It has neither input norm nor final norm; embedding and head are the target's.
    """
    as_is = lambda x: x  # noqa: E731
    tensors = {
        "fc.weight": source.fit(as_is, as_is, as_is),
        "fc.bias": torch.zeros(source.hidden),
        "embed_tokens.weight": source.embedding,
    }
    tensors |= _layer(source, "layers.0.")
    del tensors["layers.0.input_layernorm.weight"]
    return source.config | {"architectures": ["LlamaForCausalLMEagle"], "num_hidden_layers": 1}, tensors


def mimo(source: Source) -> tuple[dict[str, Any], Tensors]:
    """Derive a target and its MTP layer in one checkpoint (``MiMoForCausalLM``, dense).

    MiMo is a Qwen2: with biases of zero it computes what the tiny Llama does, so the references hold.
    """
    tensors = dict(source.weights)
    for layer in range(int(source.config["num_hidden_layers"])):
        tensors |= _zero_biases(source, f"model.layers.{layer}.")
    mtp = "model.mtp_layers.0."
    # The draft puts the state before the embedding, the fit puts it behind.
    fitted = source.fit(unit, unit, lambda h: unit(h / source.norm))
    by_token, by_state = fitted.chunk(2, dim=1)
    tensors |= {
        f"{mtp}input_proj.weight": torch.cat([by_state, by_token], 1),
        f"{mtp}token_layernorm.weight": torch.ones(source.hidden),
        f"{mtp}hidden_layernorm.weight": torch.ones(source.hidden),
        f"{mtp}final_layernorm.weight": source.norm,
    }
    tensors |= _layer(source, mtp) | _zero_biases(source, mtp)
    config = source.config | {
        "architectures": ["MiMoForCausalLM"],
        "model_type": "qwen2",
        "num_nextn_predict_layers": 1,
        "use_sliding_window": False,
    }
    return config, tensors


def multi_layer(source: Source) -> tuple[dict[str, Any], Tensors]:
    """Derive a chain of MTP layers (``Step3p5MTP``), one for each draft step, for the tiny target.

    Each layer has its own embedding, norms and head; the first is fed by the target, the others by the
    layer before. Their norms multiply by (1 + weight).
    """
    norm = source.norm
    layers: Tensors = {}
    for number in range(MTP_LAYERS):
        seen = unit if number == 0 else (lambda h: unit(h / norm))
        name = f"model.layers.{STEP_LAYERS + number}."
        layers |= _layer(source, f"{name}transformer.")
        for key in ("input_layernorm", "post_attention_layernorm"):
            layers[f"{name}transformer.{key}.weight"] = torch.zeros(source.hidden)
        head_dim = int(source.config["head_dim"])
        layers |= {
            f"{name}transformer.self_attn.q_norm.weight": torch.zeros(head_dim),
            f"{name}transformer.self_attn.k_norm.weight": torch.zeros(head_dim),
            f"{name}enorm.weight": torch.zeros(source.hidden),
            f"{name}hnorm.weight": torch.zeros(source.hidden),
            f"{name}eh_proj.weight": source.fit(unit, seen, lambda h: unit(h / norm)),
            f"{name}transformer.shared_head.norm.weight": norm - 1,
            f"{name}transformer.shared_head.output.weight": source.head,
        }
    layers["model.embed_tokens.weight"] = source.embedding
    places = STEP_LAYERS + MTP_LAYERS
    config = {
        "architectures": ["Step3p5MTP"],
        "model_type": "step3p5",
        "vocab_size": source.config["vocab_size"],
        "hidden_size": source.hidden,
        "intermediate_size": source.config["intermediate_size"],
        "num_attention_heads": source.config["num_attention_heads"],
        "num_attention_groups": source.config["num_key_value_heads"],
        "head_dim": source.config["head_dim"],
        "num_hidden_layers": STEP_LAYERS,
        "num_nextn_predict_layers": MTP_LAYERS,
        "max_position_embeddings": source.config["max_position_embeddings"],
        "max_seq_len": source.config["max_position_embeddings"],
        "rms_norm_eps": source.config["rms_norm_eps"],
        "rope_theta": [source.config["rope_theta"]] * places,
        "partial_rotary_factors": [1.0] * places,
        "layer_types": ["full_attention"] * places,
        "moe_layers_enum": "-1",
        "swiglu_limits": [0.0] * places,
        "swiglu_limits_shared": [0.0] * places,
        "use_head_wise_attn_gate": False,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
    }
    return config, layers


def _layer(source: Source, prefix: str) -> Tensors:
    """Return a decoder layer that adds nothing: the target's first, with output projections of zero."""
    first = "model.layers.0."
    tensors = {
        prefix + name.removeprefix(first): tensor.clone()
        for name, tensor in source.weights.items()
        if name.startswith(first)
    }
    for name in ("self_attn.o_proj.weight", "mlp.down_proj.weight"):
        tensors[prefix + name].zero_()
    return tensors


def _zero_biases(source: Source, prefix: str) -> Tensors:
    head = int(source.config["head_dim"])
    widths = {
        "q_proj": head * int(source.config["num_attention_heads"]),
        "k_proj": head * int(source.config["num_key_value_heads"]),
        "v_proj": head * int(source.config["num_key_value_heads"]),
    }
    return {f"{prefix}self_attn.{name}.bias": torch.zeros(width) for name, width in widths.items()}


DRAFTS: Final = {
    "standalone": standalone,
    "eagle": eagle,
    "mimo": mimo,
    "multi-layer": multi_layer,
}
"""Every derivation by name; adding one here adds it to the command line."""


def write(name: str, destination: Path) -> None:
    """Write checkpoint ``name`` with the target's tokenizer to ``destination``, an absent or empty folder."""
    if destination.exists() and any(destination.iterdir()):
        raise SystemExit(f"derive: {destination} is not empty; choose a folder that does not exist yet")
    torch.set_num_threads(1)
    config, tensors = DRAFTS[name](Source())
    destination.mkdir(parents=True, exist_ok=True)
    for file in TOKENIZER:
        shutil.copyfile(TARGET / file, destination / file)
    text = json.dumps(config | {"torch_dtype": "float32"}, indent=2) + "\n"
    (destination / "config.json").write_text(text, "utf-8")
    # A tensor that two names share is written for each, as safetensors wants it.
    whole = {key: tensor.contiguous().clone() for key, tensor in tensors.items()}
    save_file(whole, destination / "model.safetensors", metadata={"format": "pt"})


def main() -> None:
    """Write one checkpoint."""
    parser = argparse.ArgumentParser(description="Derive the draft of a speculative algorithm.")
    parser.add_argument("name", choices=list(DRAFTS))
    parser.add_argument("destination", type=Path, help="folder to write")
    options = parser.parse_args()
    write(options.name, options.destination)
    print(options.destination)


if __name__ == "__main__":
    main()
