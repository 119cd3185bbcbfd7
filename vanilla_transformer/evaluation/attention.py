"""What a model looks at while it translates (section 3.2.3), for pictures such as the paper's Figures 3 to 5."""

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast


@torch.no_grad()
def cross_attention(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    source: str,
    target: str | None = None,
    layer: int = -1,
) -> tuple[torch.Tensor, list[str], list[str]]:
    """Attention of every target token's prediction on the source, in one decoder layer.

    Args:
        model: A sequence-to-sequence model; it is left as it was.
        tokenizer: The model's tokenizer.
        source: The sentence to translate.
        target: Its translation; None: the model's own.
        layer: Which decoder layer; the last by default.

    Returns:
        Weights of shape (heads, target, source), the source's tokens, and the target's tokens, each target token with
        the weights that predicted it.
    """
    batch = tokenizer([source], return_tensors="pt").to(model.device)
    if target is None:
        ids = model.generate(**batch)
        target = tokenizer.decode(ids[0], skip_special_tokens=True)
    labels = tokenizer([target], return_tensors="pt").input_ids.to(model.device)
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")  # the only one that hands out its weights
    try:
        outputs = model.eval()(**batch, labels=labels, output_attentions=True)
    finally:
        model.set_attn_implementation(before)
    tokens = [[tokenizer.decode([i]) or "·" for i in ids.tolist()] for ids in (batch.input_ids[0], labels[0])]
    return outputs.cross_attentions[layer][0].float().cpu(), *tokens
