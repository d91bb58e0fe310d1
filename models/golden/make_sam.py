#!/usr/bin/env python3
"""Makes sam/: tiny SAM and SAM 3 models with random weights, inputs, and the results of transformers.

    ~/.cache/eutectic-peers/venv/bin/python models/golden/make_sam.py

The venv is that of benches/peers/setup.sh (torch 2.15, torchvision, transformers 5.23). Each model is a folder as
Hugging Face lays it out (config.json, model.safetensors) with expected.safetensors; some are also stored under the
names of the original releases (original.pt, original.safetensors). Results are computed in float64 and stored as float32.
"""
import json
import pathlib

import numpy
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn
from transformers import (
    Sam3VisionConfig,
    Sam3VisionModel,
    Sam3ViTConfig,
    SamConfig,
    SamImageProcessor,
    SamMaskDecoderConfig,
    SamModel,
    SamPromptEncoderConfig,
    SamVisionConfig,
    SamVisionModel,
)

SEED = 20261123
OUT = pathlib.Path(__file__).resolve().parent / "sam"


def randomise(model, seed):
    """Sets weights so that every part has an effect: transformers' own initialization leaves tables and biases at zero."""
    generator = torch.Generator().manual_seed(seed)
    for name, value in model.named_parameters():
        noise = torch.randn(value.shape, generator=generator)
        if "norm" in name:
            noise = 0.3 * noise + (1.0 if name.endswith("weight") else 0.0)
        elif any(part in name for part in ("pos_embed", "rel_pos", "position_embeddings", "positional_embedding", "_embed.", "token")):
            noise *= 0.7
        elif value.dim() > 1:
            noise *= 1.3 / value[0].numel() ** 0.5
        else:
            noise *= 0.3
        value.data.copy_(noise)


def random(shape, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def save(name, config, model, expected):
    folder = OUT / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    tied = {"prompt_encoder.shared_embedding.positional_embedding"}
    weights = {k: v.float().contiguous() for k, v in model.state_dict().items() if k not in tied}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    save_file({k: v.float().contiguous() if v.is_floating_point() else v for k, v in expected.items()}, folder / "expected.safetensors")
    return weights


def vision(name, seed, image, tables=None, **sizes):
    """An image encoder. Where the image is no square, or tables have other lengths, the parts that transformers makes for squares are replaced."""
    patch = sizes["patch_size"]
    config = SamVisionConfig(image_size=image[0], attn_implementation="eager", **sizes)
    model = SamVisionModel(config).eval()
    encoder = model.vision_encoder
    grid = [side // patch for side in image]
    encoder.patch_embed.image_size = image
    encoder.pos_embed = nn.Parameter(torch.zeros(1, *grid, sizes["hidden_size"]))
    for at, layer in enumerate(encoder.layers):
        window = layer.window_size
        lengths = (tables or {}).get(at) or [2 * (window or side) - 1 for side in grid]
        depth = sizes["hidden_size"] // sizes["num_attention_heads"]
        layer.attn.rel_pos_h, layer.attn.rel_pos_w = (nn.Parameter(torch.zeros(n, depth)) for n in lengths)
    randomise(model, seed)
    pixels = random((2, 3, *image), seed + 1)
    with torch.inference_mode():
        embedding = model.double()(pixel_values=pixels.double()).last_hidden_state
    fields = config.to_dict() | {"image_size": list(image) if image[0] != image[1] else image[0]}
    keep = ["model_type", "image_size", "qkv_bias", "use_abs_pos", "use_rel_pos", "window_size", "global_attn_indexes", "mlp_dim", "mlp_ratio",
            "hidden_act", "layer_norm_eps", "num_channels", "output_channels", "patch_size", "hidden_size", "num_hidden_layers", "num_attention_heads"]
    return save(name, {k: fields[k] for k in keep}, model, dict(pixels=pixels, embedding=embedding))


# Names of transformers' model and of the original release, in the order of the replacements.
META = [
    ("vision_encoder.neck.conv1", "image_encoder.neck.0"), ("vision_encoder.neck.layer_norm1", "image_encoder.neck.1"),
    ("vision_encoder.neck.conv2", "image_encoder.neck.2"), ("vision_encoder.neck.layer_norm2", "image_encoder.neck.3"),
    ("vision_encoder.patch_embed.projection", "image_encoder.patch_embed.proj"), ("vision_encoder.layers", "image_encoder.blocks"),
    ("vision_encoder", "image_encoder"), ("shared_image_embedding.positional_embedding", "prompt_encoder.pe_layer.positional_encoding_gaussian_matrix"),
    ("prompt_encoder.point_embed.", "prompt_encoder.point_embeddings."),
    ("mask_embed.conv1", "mask_downscaling.0"), ("mask_embed.layer_norm1", "mask_downscaling.1"), ("mask_embed.conv2", "mask_downscaling.3"),
    ("mask_embed.layer_norm2", "mask_downscaling.4"), ("mask_embed.conv3", "mask_downscaling.6"),
    ("mask_decoder.upscale_conv1", "mask_decoder.output_upscaling.0"), ("mask_decoder.upscale_layer_norm", "mask_decoder.output_upscaling.1"),
    ("mask_decoder.upscale_conv2", "mask_decoder.output_upscaling.3"), ("layer_norm_final_attn", "norm_final_attn"), (".layer_norm", ".norm"),
]


def to_meta(name):
    for ours, theirs in META:
        name = name.replace(ours, theirs)
    if "_mlps." in name or "iou_prediction_head" in name:
        # The last layer of each head is counted by the depth of these tiny models.
        name = name.replace(".layers.0.", ".layers.1.").replace("proj_in", "layers.0").replace("proj_out", "layers.2")
    return name


def segmentation(name, seed):
    """The whole model: two images, two prompts each of three points, of which one is no point."""
    config = SamConfig(
        vision_config=SamVisionConfig(hidden_size=20, num_hidden_layers=2, num_attention_heads=2, mlp_dim=28, image_size=40, patch_size=8,
                                      window_size=3, global_attn_indexes=[1], output_channels=16, num_pos_feats=8),
        prompt_encoder_config=SamPromptEncoderConfig(hidden_size=16, image_size=40, patch_size=8, mask_input_channels=8),
        mask_decoder_config=SamMaskDecoderConfig(hidden_size=16, mlp_dim=24, num_attention_heads=2, iou_head_hidden_dim=18),
    )
    config._attn_implementation = "eager"
    model = SamModel(config).eval()
    randomise(model, seed)
    pixels = random((2, 3, 40, 40), seed + 1)
    points = torch.rand((2, 2, 3, 2), generator=torch.Generator().manual_seed(seed + 2)) * 40
    labels = torch.tensor([[[1, 0, 1], [1, -1, 0]], [[0, 1, 1], [1, 1, -1]]])
    boxes = torch.tensor([[[3.0, 5.5, 20.0, 31.0], [0.0, 0.0, 39.0, 12.0]], [[8.0, 8.0, 9.0, 30.0], [1.5, 2.5, 30.0, 33.0]]])
    masks = random((2, 1, 20, 20), seed + 3)
    model.double()
    double = dict(pixel_values=pixels.double(), input_points=points.double(), input_labels=labels)
    with torch.inference_mode():
        three, one = (model(**double, multimask_output=many) for many in (True, False))
        boxed = model(**double, input_boxes=boxes.double())
        masked = model(**double, input_masks=masks.double())
        embedding = model.vision_encoder(double["pixel_values"]).last_hidden_state
    expected = dict(pixels=pixels, points=points, labels=labels, boxes=boxes, prior=masks, embedding=embedding)
    for kind, result in dict(three=three, one=one, boxed=boxed, masked=masked).items():
        expected |= {f"{kind}.masks": result.pred_masks, f"{kind}.scores": result.iou_scores}
    fields = config.to_dict()
    parts = {k: {f: v for f, v in fields[k].items() if f in USED} for k in ("vision_config", "prompt_encoder_config", "mask_decoder_config")}
    weights = save(name, parts | {"model_type": "sam"}, model, expected)
    # As training code saves it: under a key, beside other things, some tensors being views of a larger storage or of half the width.
    original = {to_meta(k): nn.Parameter(v) for k, v in weights.items()}
    key = "image_encoder.blocks.0.mlp.lin1.weight"
    original[key] = torch.cat([original[key].data.T, torch.ones(20, 3)], 1)[:, :28].T
    assert not original[key].is_contiguous()
    original |= {"pixel_mean": torch.zeros(3, 1, 1), "pixel_std": torch.ones(3, 1, 1)}
    torch.save({"model": original, "epoch": torch.tensor(7), "step": 123456789012, "lr": 1e-4, "args": {"name": "tiny", "amp": True, "crop": (1, 2.5, None)}}, OUT / name / "original.pt")


USED = {"hidden_size", "num_hidden_layers", "num_attention_heads", "mlp_dim", "image_size", "patch_size", "window_size", "global_attn_indexes", "output_channels",
        "num_pos_feats", "mask_input_channels", "iou_head_hidden_dim", "iou_head_depth", "num_multimask_outputs", "attention_downsample_rate", "hidden_act",
        "layer_norm_eps", "num_point_embeddings", "num_channels", "qkv_bias", "use_abs_pos", "use_rel_pos", "mlp_ratio"}


def sam3(name, seed, image, original):
    """The vision part of SAM 3: trunk with rotary positions, and the neck's four branches."""
    trunk = Sam3ViTConfig(hidden_size=24, intermediate_size=37, num_hidden_layers=3, num_attention_heads=2, image_size=image, patch_size=4,
                          window_size=3, global_attn_indexes=[1], pretrain_image_size=12,
                          rope_parameters={"rope_type": "axial", "rope_theta": 10000.0})
    config = Sam3VisionConfig(backbone_config=trunk, fpn_hidden_size=12)
    config._attn_implementation = "eager"
    model = Sam3VisionModel(config).eval()
    randomise(model, seed)
    pixels = random((2, 3, image, image), seed + 1)
    with torch.inference_mode():
        result = model.double()(pixel_values=pixels.double())
    expected = dict(pixels=pixels, tokens=result.last_hidden_state)
    for at, (feature, position) in enumerate(zip(result.fpn_hidden_states, result.fpn_position_encoding)):
        expected |= {f"feature.{at}": feature, f"position.{at}": position[0]}
    fields = trunk.to_dict()
    keep = ["hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_channels", "image_size", "patch_size", "hidden_act",
            "layer_norm_eps", "window_size", "global_attn_indexes", "pretrain_image_size", "rope_parameters", "model_type"]
    fields = {"model_type": "sam3_vision_model", "fpn_hidden_size": 12, "scale_factors": [4.0, 2.0, 1.0, 0.5], "backbone_config": {k: fields[k] for k in keep}}
    weights = save(name, fields, model, expected)
    if original:
        save_file(sam3_original(weights), OUT / name / "original.safetensors")


def sam3_original(weights):
    """The names and forms of the original release."""
    base, result = "detector.backbone.vision_backbone", {}
    branches = {0: {"scale_layers.0": "dconv_2x2_0", "scale_layers.2": "dconv_2x2_1"}, 1: {"scale_layers.0": "dconv_2x2"}}
    for name, value in weights.items():
        part, _, rest = name.partition(".")
        if part == "neck":
            _, at, rest = rest.split(".", 2)
            names = {"proj1": "conv_1x1", "proj2": "conv_3x3"} | branches.get(int(at), {})
            module, _, kind = rest.rpartition(".")
            result[f"{base}.convs.{at}.{names[module]}.{kind}"] = value
            result[f"{base}.sam2_convs.{at}.{names[module]}.{kind}"] = value + 1
            continue
        names = [("embeddings.position_embeddings", "pos_embed"), ("embeddings.patch_embeddings.projection", "patch_embed.proj"),
                 (".layer_norm", ".norm"), ("layer_norm.", "ln_pre."), ("layers.", "blocks."), ("attention.o_proj", "attn.proj")]
        for ours, theirs in names:
            rest = rest.replace(ours, theirs)
        if rest == "pos_embed":
            value = torch.cat([torch.full_like(value[:, :1], 9.0), value], 1)
        if ".attention.q_proj." in rest:
            rest = rest.replace("attention.q_proj", "attn.qkv")
            value = torch.cat([weights[name.replace("q_proj", f"{p}_proj")] for p in "qkv"])
        elif ".attention." in rest:
            continue
        result[f"{base}.trunk.{rest}"] = value.contiguous()
    return result


def images():
    """Makes two pictures, one in portrait and one in landscape format, and their inputs by transformers' processor."""
    folder = OUT / "images"
    folder.mkdir(parents=True, exist_ok=True)
    expected = {}
    for name, (height, width), longest in [("wide", (37, 83), 48), ("tall", (31, 22), 48)]:
        y, x = numpy.mgrid[0:height, 0:width]
        noise = numpy.random.default_rng(SEED).normal(0, 25, (height, width, 3))
        waves = numpy.stack([numpy.sin(x / 5 + y / 9), numpy.cos(x / 3), numpy.sin(y / 4)], -1)
        array = (128 + 90 * waves + noise).clip(0, 255).astype(numpy.uint8)
        Image.fromarray(array).save(folder / f"{name}.png")
        processor = SamImageProcessor(size={"longest_edge": longest}, pad_size={"height": longest, "width": longest})
        result = processor(Image.fromarray(array), return_tensors="pt")
        expected |= {f"{name}.pixels": result["pixel_values"].contiguous(), f"{name}.resized": result["reshaped_input_sizes"]}
        masks = random((1, 3, 12, 12), SEED)
        done = processor.post_process_masks([masks], [(height, width)], result["reshaped_input_sizes"], binarize=False)
        expected |= {f"{name}.mask.low": masks, f"{name}.mask": done[0].contiguous()}
    save_file(expected, folder / "expected.safetensors")
    Image.open(folder / "wide.png").save(folder / "wide.jpg", quality=95)


def main():
    common = dict(patch_size=8, num_hidden_layers=3, hidden_act="gelu")
    # A grid of 6 x 6 in windows of 4: padded. Heads of depth 7.
    vision("padded", SEED, (48, 48), hidden_size=28, num_attention_heads=4, mlp_dim=40, window_size=4, global_attn_indexes=[1], output_channels=12, **common)
    # Windows of 3 divide the grid. Tables of lengths that fit nothing: shorter, longer, one row.
    vision("resampled", SEED + 10, (48, 48), hidden_size=24, num_attention_heads=3, mlp_dim=30, window_size=3, global_attn_indexes=[2], output_channels=8,
           qkv_bias=False, tables={0: [9, 4], 1: [1, 5], 2: [7, 19]}, **common)
    # A grid of 5 x 7 in windows of 3: padded by 1 and by 2.
    vision("oblong", SEED + 20, (40, 56), hidden_size=22, num_attention_heads=2, mlp_dim=32, window_size=3, global_attn_indexes=[0, 2], output_channels=9, **common)
    segmentation("model", SEED + 30)
    sam3("sam3", SEED + 40, 24, original=True)
    sam3("sam3-padded", SEED + 50, 28, original=False)
    images()
    for file in sorted(OUT.rglob("*.*")):
        print(file.relative_to(OUT), file.stat().st_size)


if __name__ == "__main__":
    main()
