"""Where weights come from: files of tensors, never a pickle, which can run any code on whoever opens it."""


class SafetensorsOnly:
    """Makes `from_pretrained` of a model read safetensors alone."""

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path, *args, **kwargs):
        """As in transformers, but weights that exist as a pickle only (`pytorch_model.bin`) are refused.

        Raises:
            ValueError: `use_safetensors=False`.
            OSError: There are no weights in safetensors; and whatever transformers raises.
        """
        if kwargs.get("use_safetensors") is False:
            raise ValueError("use_safetensors=False is refused: weights are read from safetensors, never a pickle.")
        try:
            return super().from_pretrained(pretrained_model_name_or_path, *args, **{**kwargs, "use_safetensors": True})
        except OSError as error:
            if "safetensors" not in str(error):
                raise
            raise OSError(
                f"{pretrained_model_name_or_path} has no weights in safetensors. If it has a pickle "
                "(pytorch_model.bin), that is not read: it could run any code. Whoever made it can save it again with "
                f"save_pretrained. ({error})"
            ) from error
