"""The corpus of the world: models that no estimator was fitted on, in families, split in two halves by family.

A family is a kind of model. A hash of its name says to which half it belongs: "fitted" may be looked into when a rule
is sought, "reported" is what docs/accuracy.md reports. A family one of whose cases was looked into because it was
measured wrong moves to the fitted half (`LOOKED_INTO`), and stays there.

The split, the hash and the cases whose smallest cap is searched (`SEARCHED`) were committed before the first
measurement. Sizes are those for a card; on a CPU the same models train with `CPU_BATCH` samples.
"""

import hashlib
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

SPLIT_SEED = "fitroom world 1"
CPU_BATCH = 5
MODES = ("jax", "torch", "tensorflow-graph", "tensorflow-jit")

LOOKED_INTO = frozenset(
    {"three-dimensional convolution", "dilated convolution", "resizing", "mobile hybrid", "augmentation inside"}
)
"""Families in the fitted half whatever their hash says. These five from the start: other models of their kinds had been
measured wrong before there was a corpus, so that their causes are being looked for."""

_HERE = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """One model, with the batch that a card gets."""

    family: str
    name: str
    source: str
    """A class of a package, or a function of a file beside this one."""

    arguments: dict[str, Any] = field(default_factory=dict)
    batch_size: int
    image_size: int | None = None
    """Where the model leaves it open, or takes it as an argument."""

    sequence_length: int | None = None
    precision: str = "float32"
    optimizer: str | None = None
    loss: str | None = None
    with_boxes: bool = False
    """Whether it learns from bounding boxes."""

    input_shape: Any = None
    """Of one sample, where neither of the two says it."""

    @property
    def half(self) -> Literal["fitted", "reported"]:
        """Which half of the split its family is in."""
        return half_of(self.family)

    def load(self, *, values: bool = False) -> Any:
        """The model, as `fitroom estimate` loads it; with `values`, to be trained."""
        from fitroom.keras_model.loading.source import ModelSource, load_model

        is_function = ".py:" in self.source
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(self.arguments, file)
            file.flush()
            source = ModelSource(
                text=f"{_HERE}/{self.source}" if is_function else self.source,
                config=None if is_function else file.name,
                precision=self.precision,
                image_size=None if is_function else self.image_size,
                values=values,
            )
            return load_model(source)

    def compile(self, model: Any) -> Any:
        """The model compiled as `fitroom estimate` would assume, unless it is compiled already."""
        from fitroom.keras_model.prepared import DEFAULT_OPTIMIZER, compile_by_default, default_loss

        if self.optimizer or self.loss:
            model.compile(self.optimizer or DEFAULT_OPTIMIZER, self.loss or default_loss(model))
        elif not model.compiled:
            compile_by_default(model)
        return model


def half_of(family: str) -> Literal["fitted", "reported"]:
    """Which half a family is in."""
    digest = hashlib.sha256(f"{SPLIT_SEED}:{family}".encode()).digest()
    return "reported" if digest[0] % 2 and family not in LOOKED_INTO else "fitted"


def _of(name: str, **config: Any) -> dict[str, Any]:
    """A nested object of a class, as --config has it."""
    return {"class": name, "config": config}


_BERT = {"vocabulary_size": 8000, "num_layers": 3, "num_heads": 4, "hidden_dim": 256, "intermediate_dim": 1024}
_LLAMA = {
    "vocabulary_size": 8000,
    "num_layers": 3,
    "num_query_heads": 8,
    "num_key_value_heads": 2,
    "hidden_dim": 256,
    "intermediate_dim": 768,
}
_RESNET = {
    "input_conv_filters": [64],
    "input_conv_kernel_sizes": [7],
    "stackwise_num_filters": [64, 64, 96, 128],
    "stackwise_num_blocks": [2, 2, 2, 2],
    "stackwise_num_strides": [1, 2, 2, 2],
    "block_type": "basic_block",
}
_MIT = {
    "layerwise_depths": [1, 1, 1, 1],
    "num_layers": 4,
    "layerwise_num_heads": [1, 2, 4, 8],
    "layerwise_sr_ratios": [8, 4, 2, 1],
    "max_drop_path_rate": 0.1,
    "layerwise_patch_sizes": [7, 3, 3, 3],
    "layerwise_strides": [4, 2, 2, 2],
    "hidden_dims": [32, 64, 96, 128],
    "image_shape": [96, 96, 3],
}
_VIT = {
    "image_shape": [96, 96, 3],
    "patch_size": [8, 8],
    "num_layers": 3,
    "num_heads": 4,
    "hidden_dim": 192,
    "mlp_dim": 768,
}
_DEIT = {key: value for key, value in _VIT.items() if key != "mlp_dim"} | {"intermediate_dim": 768, "patch_size": 8}
_CLIP_VISION = _of(
    "CLIPVisionEncoder",
    patch_size=16,
    hidden_dim=128,
    num_layers=2,
    num_heads=4,
    intermediate_dim=512,
    image_shape=[96, 96, 3],
)
_CLIP_TEXT = _of(
    "CLIPTextEncoder",
    vocabulary_size=4000,
    embedding_dim=128,
    hidden_dim=128,
    num_layers=2,
    num_heads=4,
    intermediate_dim=512,
    max_sequence_length=64,
)
_KIMM = {"input_shape": [96, 96, 3], "weights": None, "classes": 10}
_EMPTY: dict[str, Any] = {}

_HUB: tuple[tuple[Any, ...], ...] = (
    # family, name, class, arguments, batch size, and what is not the default
    ("text encoder", "bert", "BertBackbone", _BERT, 64, {"sequence_length": 128}),
    (
        "text encoder",
        "bert classifier, bf16",
        "BertTextClassifier",
        {"backbone": _of("BertBackbone", **_BERT), "num_classes": 4},
        64,
        {"sequence_length": 128, "precision": "mixed_bfloat16"},
    ),
    (
        "text encoder",
        "roberta masked words",
        "RobertaMaskedLM",
        {"backbone": _of("RobertaBackbone", **_BERT)},
        32,
        {"sequence_length": 96},
    ),
    (
        "text encoder",
        "distilbert",
        "DistilBertBackbone",
        _BERT,
        64,
        {"sequence_length": 128, "precision": "mixed_float16"},
    ),
    ("text encoder", "albert", "AlbertBackbone", _BERT | {"embedding_dim": 64}, 32, {"sequence_length": 128}),
    ("text encoder, relative", "deberta", "DebertaV3Backbone", _BERT, 32, {"sequence_length": 96}),
    ("text encoder, relative", "xlnet", "XLNetBackbone", _BERT, 32, {"sequence_length": 64}),
    (
        "text encoder, fourier",
        "fnet",
        "FNetBackbone",
        {key: value for key, value in _BERT.items() if key != "num_heads"},
        32,
        {"sequence_length": 128},
    ),
    ("text decoder", "gpt2", "GPT2CausalLM", {"backbone": _of("GPT2Backbone", **_BERT)}, 16, {"sequence_length": 128}),
    ("text decoder", "llama", "LlamaBackbone", _LLAMA, 32, {"sequence_length": 128, "precision": "mixed_bfloat16"}),
    (
        "text decoder",
        "gemma",
        "GemmaBackbone",
        _LLAMA | {"head_dim": 32},
        32,
        {"sequence_length": 128},
    ),
    ("text decoder", "opt", "OPTBackbone", _BERT, 32, {"sequence_length": 128}),
    ("text decoder", "bloom", "BloomBackbone", _BERT, 32, {"sequence_length": 128}),
    ("mixture of experts", "mixtral", "MixtralBackbone", _LLAMA | {"num_experts": 4}, 16, {"sequence_length": 96}),
    (
        "mixture of experts",
        "qwen moe",
        "QwenMoeBackbone",
        _LLAMA | {"moe_intermediate_dim": 256, "shared_expert_intermediate_dim": 256, "num_experts": 4, "top_k": 2},
        16,
        {"sequence_length": 96},
    ),
    (
        "linear attention",
        "rwkv7",
        "RWKV7Backbone",
        {"hidden_size": 128, "head_size": 32, "num_layers": 2, "vocabulary_size": 4000, "intermediate_dim": 256},
        16,
        {"sequence_length": 24},
    ),
    (
        "text to text",
        "t5",
        "T5Backbone",
        _BERT,
        16,
        {"sequence_length": 96},
    ),
    ("text to text", "bart", "BartBackbone", _BERT, 16, {"sequence_length": 96}),
    (
        "audio",
        "whisper",
        "WhisperBackbone",
        _BERT | {"max_encoder_sequence_length": 400, "max_decoder_sequence_length": 64},
        8,
        {"input_shape": {"encoder_features": [400, 80], "decoder_token_ids": [64], "decoder_padding_mask": [64]}},
    ),
    (
        "audio",
        "moonshine",
        "MoonshineBackbone",
        {
            "vocabulary_size": 4000,
            "filter_dim": 128,
            "encoder_num_layers": 2,
            "decoder_num_layers": 2,
            "hidden_dim": 128,
            "intermediate_dim": 256,
            "encoder_num_heads": 4,
            "decoder_num_heads": 4,
        },
        8,
        {
            "input_shape": {
                "encoder_input_values": [16000, 1],
                "encoder_padding_mask": [16000],
                "decoder_token_ids": [32],
                "decoder_padding_mask": [32],
            }
        },
    ),
    (
        "diffusion",
        "autoencoder of images",
        "keras_hub.src.models.vae.vae_backbone:VAEBackbone",
        {
            "encoder_num_filters": [32, 64],
            "encoder_num_blocks": [1, 1],
            "decoder_num_filters": [64, 32],
            "decoder_num_blocks": [1, 1],
            "sample_channels": 8,
        },
        8,
        {"input_shape": [64, 64, 3]},
    ),
    (
        "diffusion",
        "flux",
        "FluxBackbone",
        {
            "input_channels": 16,
            "hidden_size": 128,
            "mlp_ratio": 2.0,
            "num_heads": 4,
            "depth": 1,
            "depth_single_blocks": 2,
            "axes_dim": [8, 12, 12],
            "theta": 10000,
            "use_bias": True,
            "image_shape": [144, 16],
            "text_shape": [32, 96],
            "image_ids_shape": [144, 3],
            "text_ids_shape": [32, 3],
            "y_shape": [64],
        },
        16,
        {},
    ),
    (
        "diffusion",
        "diffusion transformer",
        "keras_hub.src.models.stable_diffusion_3.mmdit:MMDiT",
        {
            "patch_size": 2,
            "hidden_dim": 128,
            "num_layers": 2,
            "num_heads": 4,
            "position_size": 32,
            "latent_shape": [32, 32, 8],
            "context_shape": [24, 96],
            "pooled_projection_shape": [64],
        },
        16,
        {},
    ),
    (
        "detection",
        "retinanet",
        "RetinaNetObjectDetector",
        {
            "backbone": _of(
                "RetinaNetBackbone",
                image_encoder=_of("ResNetBackbone", **_RESNET, image_shape=[128, 128, 3]),
                min_level=3,
                max_level=5,
                use_p5=False,
                image_shape=[128, 128, 3],
            ),
            "num_classes": 4,
            "bounding_box_format": "xywh",
        },
        8,
        {"with_boxes": True},
    ),
    (
        "detection",
        "feature pyramid",
        "RetinaNetBackbone",
        {
            "image_encoder": _of("ResNetBackbone", **_RESNET, image_shape=[128, 128, 3]),
            "min_level": 3,
            "max_level": 5,
            "use_p5": False,
            "image_shape": [128, 128, 3],
        },
        8,
        {},
    ),
    (
        "segmentation",
        "deeplab",
        "DeepLabV3ImageSegmenter",
        {
            "backbone": _of(
                "DeepLabV3Backbone",
                image_encoder=_of("ResNetBackbone", **_RESNET, image_shape=[128, 128, 3]),
                spatial_pyramid_pooling_key="P5",
                low_level_feature_key="P2",
                upsampling_size=8,
                dilation_rates=[6, 12, 18],
                image_shape=[128, 128, 3],
            ),
            "num_classes": 4,
        },
        8,
        {},
    ),
    (
        "segmentation",
        "segformer",
        "SegFormerImageSegmenter",
        {
            "backbone": _of("SegFormerBackbone", image_encoder=_of("MiTBackbone", **_MIT), projection_filters=64),
            "num_classes": 4,
        },
        16,
        {},
    ),
    (
        "segmentation",
        "basnet",
        "BASNetImageSegmenter",
        {
            "backbone": _of(
                "BASNetBackbone",
                image_encoder=_of(
                    "ResNetBackbone",
                    **_RESNET | {"stackwise_num_filters": [64, 128, 256, 512]},
                ),
                num_classes=1,
                image_shape=[96, 96, 3],
                projection_filters=64,
            ),
        },
        4,
        {},
    ),
    ("vision transformer", "vit", "ViTBackbone", _VIT, 32, {}),
    (
        "vision transformer",
        "deit classifier, bf16",
        "DeiTImageClassifier",
        {"backbone": _of("DeiTBackbone", **_DEIT), "num_classes": 5},
        32,
        {"precision": "mixed_bfloat16"},
    ),
    (
        "vision transformer",
        "dinov2",
        "DINOV2Backbone",
        {
            "patch_size": 12,
            "num_layers": 3,
            "hidden_dim": 128,
            "num_heads": 4,
            "intermediate_dim": 512,
            "image_shape": [96, 96, 3],
            "position_embedding_shape": [96, 96, 3],
        },
        32,
        {},
    ),
    (
        "vision transformer, windows",
        "swin",
        "SwinTransformerBackbone",
        {
            "image_shape": [96, 96, 3],
            "embed_dim": 48,
            "depths": [2, 2],
            "num_heads": [2, 4],
            "window_size": 6,
        },
        16,
        {},
    ),
    ("vision transformer, windows", "mit", "MiTBackbone", _MIT, 16, {}),
    (
        "images and text",
        "clip",
        "CLIPBackbone",
        {"vision_encoder": _CLIP_VISION, "text_encoder": _CLIP_TEXT, "projection_dim": 64},
        16,
        {"sequence_length": 64},
    ),
    (
        "images and text",
        "siglip",
        "SigLIPBackbone",
        {
            "vision_encoder": _of(
                "SigLIPVisionEncoder",
                patch_size=16,
                hidden_dim=128,
                num_layers=2,
                num_heads=4,
                intermediate_dim=512,
                image_shape=[96, 96, 3],
            ),
            "text_encoder": _of(
                "SigLIPTextEncoder",
                vocabulary_size=4000,
                embedding_dim=128,
                hidden_dim=128,
                num_layers=2,
                num_heads=4,
                intermediate_dim=512,
                max_sequence_length=64,
            ),
        },
        16,
        {"sequence_length": 64},
    ),
    (
        "residual network",
        "resnet, pre-activated",
        "ResNetBackbone",
        _RESNET | {"use_pre_activation": True},
        32,
        {"image_size": 96},
    ),
    (
        "residual network",
        "cspnet",
        "CSPNetBackbone",
        {
            "stem_filters": 32,
            "stem_kernel_size": 3,
            "stem_strides": 1,
            "stackwise_depth": [1, 2, 2],
            "stackwise_strides": [1, 2, 2],
            "stackwise_num_filters": [32, 64, 128],
            "block_type": "dark_block",
            "stage_type": "dark",
        },
        32,
        {"image_size": 96},
    ),
    (
        "residual network",
        "hgnet",
        "HGNetV2Backbone",
        {
            "depths": [1, 2, 2],
            "embedding_size": 32,
            "hidden_sizes": [64, 128, 256],
            "stem_channels": [3, 16, 32],
            "hidden_act": "relu",
            "use_learnable_affine_block": False,
            "stackwise_stage_filters": [[32, 16, 64, 1, 1, 3], [64, 32, 128, 2, 1, 3], [128, 64, 256, 2, 1, 3]],
            "apply_downsample": [False, True, True],
            "use_lightweight_conv_block": [False, False, False],
            "image_shape": [96, 96, 3],
        },
        32,
        {},
    ),
)

_OF_KIMM = (
    ("regnet", "RegNetY002", 32),
    ("regnet", "RegNetX002", 32),
    ("reparameterised", "RepVGGA0", 16),
    ("reparameterised", "MobileOneS0", 16),
    ("mobile hybrid", "MobileViTXXS", 16),
    ("mobile hybrid", "MobileViTV2W050", 16),
    ("ghost", "GhostNetW050", 32),
    ("ghost", "GhostNetV2W100", 16),
    ("large kernels", "InceptionNeXtTiny", 8),
    ("large kernels", "ConvNeXtAtto", 16),
    ("squeezed mobile", "LCNet050", 32),
    ("squeezed mobile", "TinyNetE", 32),
)

_OWN: tuple[tuple[str, str, int, dict[str, Any]], ...] = (
    ("one-dimensional convolution", "layers_models.py:conv1d_audio", 32, {}),
    ("one-dimensional convolution", "layers_models.py:conv1d_wavenet", 32, {}),
    ("three-dimensional convolution", "layers_models.py:conv3d_video", 16, {}),
    ("three-dimensional convolution", "layers_models.py:conv3d_unet", 16, {}),
    ("dilated convolution", "layers_models.py:dilated_context", 16, {}),
    ("dilated convolution", "layers_models.py:dilated_valid", 32, {}),
    ("transposed convolution", "layers_models.py:transposed_autoencoder", 32, {}),
    ("transposed convolution", "layers_models.py:transposed_unet", 16, {"precision": "mixed_bfloat16"}),
    ("transposed convolution", "layers_models.py:transposed_1d", 64, {}),
    ("resizing", "layers_models.py:resizing_super_resolution", 16, {}),
    ("resizing", "layers_models.py:resizing_pyramid", 32, {}),
    ("pooling and groups", "layers_models.py:pooling_of_each_kind", 32, {}),
    ("pooling and groups", "layers_models.py:grouped_shuffle", 32, {}),
    ("recurrent", "layers_models.py:lstm_masked", 64, {}),
    ("recurrent", "layers_models.py:gru_unmasked", 64, {}),
    ("recurrent", "layers_models.py:simple_rnn_recurrent_dropout", 64, {}),
    ("recurrent", "layers_models.py:rnn_stacked_cells", 64, {}),
    ("recurrent convolution", "layers_models.py:convlstm_frames", 8, {}),
    ("recurrent convolution", "layers_models.py:time_distributed_cnn", 16, {}),
    ("attention", "other_models.py:attention_variants", 32, {}),
    ("attention", "other_models.py:attention_masked", 32, {"precision": "mixed_bfloat16"}),
    ("attention", "other_models.py:attention_flash", 8, {"precision": "mixed_bfloat16"}),
    ("attention", "other_models.py:attention_seq2seq", 32, {}),
    ("normalisation", "other_models.py:normalisations", 32, {}),
    ("normalisation", "other_models.py:regularised", 32, {}),
    ("mixing", "other_models.py:mlp_mixer", 64, {}),
    ("mixing", "other_models.py:stochastic_depth", 32, {}),
    ("mixing", "other_models.py:deep_einsum", 64, {}),
    ("augmentation inside", "other_models.py:augmentation_inside", 32, {}),
    ("augmentation inside", "other_models.py:augmentation_crop", 32, {}),
    ("several inputs", "other_models.py:several_inputs_and_outputs", 32, {}),
    ("several inputs", "other_models.py:shared_and_nested", 32, {}),
    ("several inputs", "other_models.py:tabular_wide", 1024, {}),
    ("several inputs", "other_models.py:sparse_bag", 512, {}),
    ("own step or loss", "other_models.py:variational_autoencoder", 64, {}),
    ("own step or loss", "other_models.py:contrastive", 64, {}),
    ("own step or loss", "other_models.py:own_train_step", 64, {}),
    ("optimizer", "other_models.py:optimizer_with_everything", 64, {}),
    ("optimizer", "other_models.py:optimizer_muon", 64, {}),
    ("optimizer", "other_models.py:optimizer_adafactor", 64, {}),
    ("optimizer", "other_models.py:optimizer_ftrl_centered", 64, {}),
)


def _configurations() -> Iterator[Configuration]:
    for family, name, source, arguments, batch_size, more in _HUB:
        text = source if ":" in source else f"keras_hub:{source}"
        yield Configuration(family=family, name=name, source=text, arguments=arguments, batch_size=batch_size, **more)
    for family, name, batch_size in _OF_KIMM:
        yield Configuration(
            family=family, name=name.lower(), source=f"kimm:{name}", arguments=_KIMM, batch_size=batch_size
        )
    for family, source, batch_size, more in _OWN:
        name = source.rpartition(":")[2].replace("_", " ")
        yield Configuration(family=family, name=name, source=source, batch_size=batch_size, **more)


CONFIGURATIONS: tuple[Configuration, ...] = tuple(_configurations())
FAMILIES: tuple[str, ...] = tuple(dict.fromkeys(each.family for each in CONFIGURATIONS))

FIRST: tuple[Configuration, ...] = tuple(
    next(each for each in CONFIGURATIONS if each.family == family) for family in FAMILIES
)
"""One configuration a family: what the first visit to a card measures on every backend."""


def _is_searched(configuration: Configuration) -> bool:
    digest = hashlib.sha256(f"{SPLIT_SEED} caps:{configuration.name}".encode()).digest()
    return digest[0] % 6 == 0


SEARCHED: frozenset[str] = frozenset(each.name for each in CONFIGURATIONS if _is_searched(each))
"""The cases whose smallest cap is found by bisection."""


def by_name(name: str) -> Configuration:
    """The configuration of a name."""
    return next(each for each in CONFIGURATIONS if each.name == name)
