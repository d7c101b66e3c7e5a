"""torch_llama.py with another model: the Qwen3-MoE of transformers, whose layers all have experts. The same options, and
--experts and --top_k; --hidden is the width of an expert.

FSDP2 sums no gradient of an expert that had no token on a rank, and the ranks' sums then differ in size. The embedding's
deviation of 1, as in torch_llama.py, keeps the routers' first choices nearly even.
"""
import torch.nn.functional as F
from torch import nn
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

import torch_llama


class Experts(nn.Module):
    def __init__(self, options):
        super().__init__()
        config = Qwen3MoeConfig(
            vocab_size=options.vocab, hidden_size=options.dim, num_hidden_layers=options.layers,
            num_attention_heads=options.heads, num_key_value_heads=options.heads, head_dim=options.dim // options.heads,
            moe_intermediate_size=options.hidden, num_experts=options.experts, num_experts_per_tok=options.top_k,
            norm_topk_prob=True, max_position_embeddings=options.seq, use_cache=False)
        self.model = Qwen3MoeForCausalLM._from_config(config, attn_implementation="sdpa")
        nn.init.normal_(self.model.model.embed_tokens.weight)
        nn.init.normal_(self.model.lm_head.weight, std=options.dim**-0.5)
        self.blocks = self.model.model.layers

    def loss(self, logits, targets):
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())

    def forward(self, tokens):
        """The loss of all tokens but the first."""
        return self.loss(self.model(tokens[:, :-1]).logits, tokens[:, 1:])


if __name__ == "__main__":
    torch_llama.main(Experts, hidden=256, layers=8, experts=16, top_k=4)
