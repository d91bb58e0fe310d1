"""Architectures for exports: their construction with seeded random weights, and their inputs.

A transformers architecture is its class and a configuration; fields that the configuration omits have the library's default, so an
empty one is the model at its real size. Weights are replaced by random ones, because exporters merge the library's initial biases and gains.
"""
import torch
import transformers as tf
from torch import nn
from torch.nn.functional import interpolate, silu

WORDS = 512
# Small sizes, but large enough that kernels take most of the time.
WIDE = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 640}
TEXT = WIDE | {"vocab_size": WORDS, "max_position_embeddings": 256, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
GROUPED = TEXT | {"num_key_value_heads": 2}
PIXELS = WIDE | {"image_size": 96, "patch_size": 8}
GPT = {"vocab_size": WORDS, "n_positions": 256, "n_embd": 256, "n_layer": 4, "n_head": 4, "bos_token_id": 1, "eos_token_id": 2}
T5 = {"vocab_size": WORDS, "d_model": 256, "d_kv": 64, "d_ff": 640, "num_layers": 4, "num_heads": 4}
BART = {
    "vocab_size": WORDS, "d_model": 256, "encoder_layers": 3, "decoder_layers": 3, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 640, "decoder_ffn_dim": 640, "max_position_embeddings": 256, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}
SPEECH = WIDE | {"conv_dim": [64] * 7, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4, "vocab_size": 32}
DISENTANGLED = TEXT | {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "max_relative_positions": 64}
EXPERTS = {"moe_intermediate_size": 128, "num_experts_per_tok": 2, "norm_topk_prob": True}
RESNET = {"embedding_size": 32, "hidden_sizes": [32, 64, 128, 256], "depths": [2, 2, 2, 2], "layer_type": "basic"}


def text(batch=1, seq=64, masked=True):
    """Returns ids, and a mask that hides the end of the last text."""
    x = torch.randint(3, WORDS, (batch, seq))
    mask = torch.ones_like(x)
    mask[-1, seq - seq // 4 :] = 0
    return {"input_ids": x, "attention_mask": mask} if masked else {"input_ids": x}


def pair(seq=48):
    return text(1, seq) | {"decoder_input_ids": torch.randint(3, WORDS, (1, seq // 2))}


def image(size, channels=3):
    return {"pixel_values": torch.randn(1, channels, size, size)}


def sound(samples=8000):
    return {"input_values": torch.randn(1, samples)}


# By name: class, configuration class, configuration values, inputs. These architectures are exported in every form of attention.
EVERY_SPELLING = {
    "bert": ("BertModel", "BertConfig", TEXT, text),
    "llama": ("LlamaForCausalLM", "LlamaConfig", GROUPED, text),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", GPT, text),
    "vit": ("ViTModel", "ViTConfig", PIXELS, lambda: image(96)),
    "t5": ("T5EncoderModel", "T5Config", T5, text),
    "mistral": ("MistralForCausalLM", "MistralConfig", GROUPED | {"sliding_window": 24}, text),
    "gemma3": ("Gemma3ForCausalLM", "Gemma3TextConfig", GROUPED | {"head_dim": 64, "sliding_window": 24}, text),
    "clip-text": ("CLIPTextModel", "CLIPTextConfig", TEXT, text),
    "clip-vision": ("CLIPVisionModel", "CLIPVisionConfig", PIXELS, lambda: image(96)),
    "mpnet": ("MPNetModel", "MPNetConfig", TEXT, text),
    "deberta": ("DebertaModel", "DebertaConfig", DISENTANGLED, text),
    "deberta-v2": (
        "DebertaV2Model", "DebertaV2Config",
        DISENTANGLED | {"position_buckets": 32, "share_att_key": True, "norm_rel_ebd": "layer_norm"}, text,
    ),
    "bloom": ("BloomForCausalLM", "BloomConfig", {"vocab_size": WORDS, "hidden_size": 256, "n_layer": 4, "n_head": 4}, text),
}
TRANSFORMERS = {
    "albert": ("AlbertModel", "AlbertConfig", TEXT | {"embedding_size": 128}, text),
    "distilbert": ("DistilBertModel", "DistilBertConfig", {"vocab_size": WORDS, "dim": 256, "n_layers": 4, "n_heads": 4, "hidden_dim": 640}, text),
    "roberta": ("RobertaModel", "RobertaConfig", TEXT, text),
    "electra": ("ElectraModel", "ElectraConfig", TEXT, text),
    "mobilebert": ("MobileBertModel", "MobileBertConfig", {"vocab_size": WORDS, "num_hidden_layers": 4}, text),
    "squeezebert": ("SqueezeBertModel", "SqueezeBertConfig", TEXT | {"embedding_size": 256}, text),
    "convbert": ("ConvBertModel", "ConvBertConfig", TEXT, text),
    "roformer": ("RoFormerModel", "RoFormerConfig", TEXT, text),
    "fnet": ("FNetModel", "FNetConfig", TEXT, lambda: text(masked=False)),
    "funnel": ("FunnelBaseModel", "FunnelConfig", {"vocab_size": WORDS, "d_model": 256, "n_head": 4, "d_head": 64, "d_inner": 640, "block_sizes": [2, 2]}, text),
    "modernbert": ("ModernBertModel", "ModernBertConfig", TEXT | {"local_attention": 32}, text),
    "esm": ("EsmModel", "EsmConfig", TEXT | {"position_embedding_type": "rotary", "mask_token_id": 5}, text),
    "xlnet": ("XLNetModel", "XLNetConfig", {"vocab_size": WORDS, "d_model": 256, "n_layer": 3, "n_head": 4, "d_inner": 640}, text),
    "nystromformer": ("NystromformerModel", "NystromformerConfig", TEXT | {"segment_means_seq_len": 64, "num_landmarks": 16}, text),
    "rembert": ("RemBertModel", "RemBertConfig", TEXT, text),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", GROUPED, text),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", GROUPED | {"head_dim": 64}, text),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config", GROUPED | {"head_dim": 64, "sliding_window": 24}, text),
    "phi": ("PhiForCausalLM", "PhiConfig", TEXT, text),
    "phi3": ("Phi3ForCausalLM", "Phi3Config", GROUPED, text),
    "falcon": ("FalconForCausalLM", "FalconConfig", TEXT | {"multi_query": True}, text),
    "mpt": ("MptForCausalLM", "MptConfig", {"vocab_size": WORDS, "d_model": 256, "n_layers": 4, "n_heads": 4, "max_seq_len": 256}, text),
    "gpt-neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", TEXT, text),
    "gpt-neo": ("GPTNeoForCausalLM", "GPTNeoConfig", {"vocab_size": WORDS, "hidden_size": 256, "num_layers": 4, "num_heads": 4, "attention_types": [[["global", "local"], 2]], "window_size": 24}, text),
    "gptj": ("GPTJForCausalLM", "GPTJConfig", GPT | {"rotary_dim": 32}, text),
    "codegen": ("CodeGenForCausalLM", "CodeGenConfig", GPT | {"rotary_dim": 32}, text),
    "opt": ("OPTForCausalLM", "OPTConfig", TEXT | {"ffn_dim": 640, "word_embed_proj_dim": 256}, text),
    "olmo2": ("Olmo2ForCausalLM", "Olmo2Config", GROUPED, text),
    "stablelm": ("StableLmForCausalLM", "StableLmConfig", GROUPED, text),
    "starcoder2": ("Starcoder2ForCausalLM", "Starcoder2Config", GROUPED, text),
    "cohere": ("CohereForCausalLM", "CohereConfig", GROUPED, text),
    "granite": ("GraniteForCausalLM", "GraniteConfig", GROUPED, text),
    "smollm3": ("SmolLM3ForCausalLM", "SmolLM3Config", GROUPED, text),
    "xglm": ("XGLMForCausalLM", "XGLMConfig", {"vocab_size": WORDS, "d_model": 256, "ffn_dim": 640, "num_layers": 4, "attention_heads": 4}, text),
    "biogpt": ("BioGptForCausalLM", "BioGptConfig", TEXT, text),
    "mixtral": ("MixtralForCausalLM", "MixtralConfig", GROUPED | {"num_local_experts": 4, "num_experts_per_tok": 2}, text),
    "qwen2-moe": (
        "Qwen2MoeForCausalLM", "Qwen2MoeConfig",
        GROUPED | EXPERTS | {"num_experts": 8, "shared_expert_intermediate_size": 256, "decoder_sparse_step": 1}, text,
    ),
    "deepseek-v3": (
        "DeepseekV3ForCausalLM", "DeepseekV3Config",
        TEXT | EXPERTS | {
            "num_key_value_heads": 4, "n_routed_experts": 8, "n_shared_experts": 1, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1,
            "q_lora_rank": 96, "kv_lora_rank": 64, "qk_rope_head_dim": 32, "qk_nope_head_dim": 32, "v_head_dim": 64,
        },
        text,
    ),
    "gpt-oss": ("GptOssForCausalLM", "GptOssConfig", GROUPED | {"head_dim": 64, "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": 24}, text),
    "t5-both": ("T5Model", "T5Config", T5 | {"num_decoder_layers": 3}, pair),
    "bart": ("BartModel", "BartConfig", BART, pair),
    "marian": ("MarianModel", "MarianConfig", BART, pair),
    "pegasus": ("PegasusModel", "PegasusConfig", BART, pair),
    "m2m": ("M2M100Model", "M2M100Config", BART, pair),
    "deit": ("DeiTModel", "DeiTConfig", PIXELS, lambda: image(96)),
    "beit": ("BeitModel", "BeitConfig", PIXELS | {"use_relative_position_bias": True}, lambda: image(96)),
    "dinov2": ("Dinov2Model", "Dinov2Config", PIXELS, lambda: image(96)),
    "siglip": ("SiglipVisionModel", "SiglipVisionConfig", PIXELS, lambda: image(96)),
    "swin": ("SwinModel", "SwinConfig", {"image_size": 128, "embed_dim": 48, "depths": [2, 2, 2], "num_heads": [2, 4, 8], "window_size": 4}, lambda: image(128)),
    "swinv2": ("Swinv2Model", "Swinv2Config", {"image_size": 128, "embed_dim": 48, "depths": [2, 2, 2], "num_heads": [2, 4, 8], "window_size": 4}, lambda: image(128)),
    "segformer": ("SegformerForSemanticSegmentation", "SegformerConfig", {"num_labels": 20}, lambda: image(128)),
    "mobilevit": ("MobileViTModel", "MobileViTConfig", {"image_size": 128}, lambda: image(128)),
    "poolformer": ("PoolFormerModel", "PoolFormerConfig", {"hidden_sizes": [32, 64, 160, 256]}, lambda: image(128)),
    "pvt": ("PvtModel", "PvtConfig", {"image_size": 128, "hidden_sizes": [32, 64, 128, 256]}, lambda: image(128)),
    "cvt": ("CvtModel", "CvtConfig", {"embed_dim": [32, 64, 128], "num_heads": [1, 2, 4], "depth": [1, 1, 3]}, lambda: image(128)),
    "levit": ("LevitModel", "LevitConfig", {"image_size": 128}, lambda: image(128)),
    "focalnet": ("FocalNetModel", "FocalNetConfig", {"image_size": 128, "embed_dim": 48}, lambda: image(128)),
    "hiera": ("HieraModel", "HieraConfig", {"image_size": [128, 128], "embed_dim": 48, "depths": [1, 2, 3, 1]}, lambda: image(128)),
    "convnextv2": ("ConvNextV2Model", "ConvNextV2Config", {"hidden_sizes": [32, 64, 128, 256], "depths": [2, 2, 4, 2]}, lambda: image(128)),
    "efficientnet": ("EfficientNetModel", "EfficientNetConfig", {"width_coefficient": 1.0, "depth_coefficient": 1.0, "image_size": 128, "hidden_dim": 1280}, lambda: image(128)),
    "regnet": ("RegNetModel", "RegNetConfig", {"embedding_size": 32, "hidden_sizes": [64, 128, 192, 256], "depths": [2, 2, 4, 2], "groups_width": 32}, lambda: image(128)),
    "bit": ("BitModel", "BitConfig", {"hidden_sizes": [64, 128, 256, 512], "depths": [2, 2, 2, 2], "embedding_size": 32}, lambda: image(128)),
    "dpt": ("DPTForDepthEstimation", "DPTConfig", PIXELS | {"backbone_out_indices": [0, 1, 2, 3], "neck_hidden_sizes": [32, 64, 128, 128], "fusion_hidden_size": 64, "is_hybrid": False}, lambda: image(96)),
    "yolos": ("YolosForObjectDetection", "YolosConfig", PIXELS | {"image_size": [96, 96], "num_detection_tokens": 20}, lambda: image(96)),
    "detr": (
        "DetrForObjectDetection", "DetrConfig",
        {
            "use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None, "backbone_config": RESNET, "d_model": 128,
            "encoder_layers": 3, "decoder_layers": 3, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 256,
            "decoder_ffn_dim": 256, "num_queries": 20,
        },
        lambda: image(192),
    ),
    "swin2sr": ("Swin2SRForImageSuperResolution", "Swin2SRConfig", {"image_size": 64, "embed_dim": 60, "depths": [2, 2], "num_heads": [6, 6], "window_size": 8, "upscale": 2}, lambda: image(64)),
    "wav2vec2": ("Wav2Vec2Model", "Wav2Vec2Config", SPEECH, sound),
    "hubert": ("HubertModel", "HubertConfig", SPEECH, sound),
    "ast": ("ASTModel", "ASTConfig", WIDE | {"max_length": 128}, lambda: {"input_values": torch.randn(1, 128, 128)}),
    "whisper": (
        "WhisperModel", "WhisperConfig",
        BART | {"num_mel_bins": 40, "max_source_positions": 100, "max_target_positions": 64, "decoder_start_token_id": 1},
        lambda: {"input_features": torch.randn(1, 40, 200), "decoder_input_ids": torch.randint(3, WORDS, (1, 16))},
    ),
    # These have their real sizes.
    "bert-base": ("BertModel", "BertConfig", {}, lambda: text(1, 128)),
    "gpt2-base": ("GPT2LMHeadModel", "GPT2Config", {}, lambda: text(1, 64)),
    "mpnet-base": ("MPNetModel", "MPNetConfig", {}, lambda: text(1, 128)),
    "vit-base": ("ViTModel", "ViTConfig", {}, lambda: image(224)),
    "segformer-b0": ("SegformerForSemanticSegmentation", "SegformerConfig", {}, lambda: image(512)),
    "dinov2-small": ("Dinov2Model", "Dinov2Config", {"hidden_size": 384, "num_attention_heads": 6}, lambda: image(224)),
    "llama-24": ("LlamaForCausalLM", "LlamaConfig", GROUPED | {"num_hidden_layers": 24}, text),
    "gemma3-24": ("Gemma3ForCausalLM", "Gemma3TextConfig", GROUPED | {"head_dim": 64, "sliding_window": 24, "num_hidden_layers": 24}, text),
}
# By name: torchvision's name, pixels along a side. These have their real sizes.
VISION = {
    "resnet50": ("resnet50", 224), "resnext50": ("resnext50_32x4d", 224), "mobilenet-v2": ("mobilenet_v2", 224),
    "mobilenet-v3": ("mobilenet_v3_large", 224), "efficientnet-b0": ("efficientnet_b0", 224), "convnext-tiny": ("convnext_tiny", 224),
    "densenet121": ("densenet121", 224), "inception-v3": ("inception_v3", 299), "googlenet": ("googlenet", 224), "maxvit": ("maxvit_t", 224),
    "swin-v2-tiny": ("swin_v2_t", 224), "squeezenet": ("squeezenet1_1", 224), "shufflenet": ("shufflenet_v2_x1_0", 224),
    "mnasnet": ("mnasnet1_0", 224), "regnet-y": ("regnet_y_400mf", 224), "alexnet": ("alexnet", 224), "vgg11-bn": ("vgg11_bn", 224),
    "deeplab": ("deeplabv3_mobilenet_v3_large", 224), "lraspp": ("lraspp_mobilenet_v3_large", 224),
}


class Block(nn.Module):
    """Two convolutions with group norms, a residual around them."""

    def __init__(self, before, after):
        super().__init__()
        self.n1, self.n2 = nn.GroupNorm(8, before), nn.GroupNorm(8, after)
        self.c1, self.c2 = nn.Conv2d(before, after, 3, padding=1), nn.Conv2d(after, after, 3, padding=1)
        self.around = nn.Conv2d(before, after, 1) if before != after else nn.Identity()

    def forward(self, x):
        return self.around(x) + self.c2(silu(self.n2(self.c1(silu(self.n1(x))))))


class UNet(nn.Module):
    """The structure of a denoiser: down, and up with nearest upsampling, with skip connections."""

    def __init__(self, widths=(32, 64, 128)):
        super().__init__()
        self.first, self.last = nn.Conv2d(4, widths[0], 3, padding=1), nn.Conv2d(widths[0], 4, 3, padding=1)
        steps = list(zip(widths, widths[1:]))
        self.down = nn.ModuleList(Block(a, b) for a, b in steps)
        self.halve = nn.ModuleList(nn.Conv2d(b, b, 3, 2, 1) for _, b in steps)
        self.middle = Block(widths[-1], widths[-1])
        self.up = nn.ModuleList(Block(2 * b, a) for a, b in reversed(steps))

    def forward(self, pixel_values):
        x, kept = self.first(pixel_values), []
        for block, halve in zip(self.down, self.halve):
            x = block(x)
            kept.append(x)
            x = halve(x)
        x = self.middle(x)
        for block in self.up:
            x = block(torch.cat([interpolate(x, scale_factor=2.0, mode="nearest"), kept.pop()], 1))
        return self.last(x)


class Decoder(nn.Module):
    """A VAE's decoder: blocks and nearest upsampling."""

    def __init__(self, widths=(128, 64, 32)):
        super().__init__()
        self.first, self.last = nn.Conv2d(4, widths[0], 3, padding=1), nn.Conv2d(widths[-1], 3, 3, padding=1)
        self.up = nn.ModuleList(Block(a, b) for a, b in zip(widths, widths[1:]))

    def forward(self, pixel_values):
        x = self.first(pixel_values)
        for block in self.up:
            x = interpolate(block(x), scale_factor=2.0, mode="nearest")
        return self.last(x)


def step(before, after, size, stride=1):
    return nn.Sequential(nn.Conv2d(before, after, size, stride, size // 2, bias=False), nn.BatchNorm2d(after), nn.SiLU())


class Partial(nn.Module):
    """YOLO's block: half of the channels pass bottlenecks, and all intermediate results are concatenated."""

    def __init__(self, width):
        super().__init__()
        self.half = width // 2
        self.inner = nn.ModuleList(nn.Sequential(step(self.half, self.half, 3), step(self.half, self.half, 3)) for _ in range(2))
        self.out = step(2 * width, width, 1)

    def forward(self, x):
        parts = list(x.split(self.half, 1))
        for inner in self.inner:
            parts.append(parts[-1] + inner(parts[-1]))
        return self.out(torch.cat(parts, 1))


class Yolo(nn.Module):
    """The structure of a detector: strided convolutions, partial blocks, pooling at several sizes, a pyramid, one head."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(step(3, 16, 3, 2), step(16, 32, 3, 2), Partial(32), step(32, 64, 3, 2), Partial(64))
        self.deep, self.pool = nn.Sequential(step(64, 128, 3, 2), Partial(128)), nn.MaxPool2d(5, 1, 2)
        self.squeeze, self.merge = step(512, 128, 1), nn.Sequential(step(192, 64, 1), Partial(64))
        self.head = nn.ModuleList(nn.Conv2d(n, 85, 1) for n in (64, 128))

    def forward(self, pixel_values):
        fine = self.stem(pixel_values)
        deep = [self.deep(fine)]
        for _ in range(3):
            deep.append(self.pool(deep[-1]))
        deep = self.squeeze(torch.cat(deep, 1))
        fine = self.merge(torch.cat([interpolate(deep, scale_factor=2.0, mode="nearest"), fine], 1))
        return torch.cat([head(x).flatten(2) for head, x in zip(self.head, (fine, deep))], 2).transpose(1, 2)


OWN = {"unet": (UNet, lambda: image(64, 4)), "vae-decoder": (Decoder, lambda: image(32, 4)), "yolo": (Yolo, lambda: image(256))}


class First(nn.Module):
    """A model that returns the first output of another one, with inputs by position."""

    def __init__(self, model, names):
        super().__init__()
        self.model, self.names = model, names
        text = "input_ids" in names and "decoder_input_ids" not in names
        self.extra = {"return_dict": False} | ({"use_cache": False} if text and hasattr(model, "lm_head") else {})

    def forward(self, *given):
        return self.model(**dict(zip(self.names, given)), **self.extra)[0]


def variants(name):
    """Returns the forms of attention and the exporters for an architecture."""
    exporters = ("dynamo", "script")
    if name in EVERY_SPELLING:
        return [(attention, exporter) for attention in ("eager", "sdpa") for exporter in exporters]
    if name in TRANSFORMERS:
        return [("sdpa", "dynamo"), ("eager", "script")]
    return [("plain", exporter) for exporter in exporters]


def names():
    return [*EVERY_SPELLING, *OWN, *VISION, *TRANSFORMERS]


def make(name, attention):
    """Returns a module in evaluation mode and its inputs by name, from one seed."""
    torch.manual_seed(0)
    if name in OWN:
        kind, given = OWN[name]
        model, given = kind(), given()
    elif name in VISION:
        import torchvision

        kind, size = VISION[name]
        model, given = torchvision.models.get_model(kind, weights=None, **({"weights_backbone": None} if "v3_large_" in kind or kind.startswith(("deep", "lraspp")) else {})), image(size)
        if kind.startswith(("deep", "lraspp")):
            model = Named(model)
    else:
        kind, config, values, given = (EVERY_SPELLING | TRANSFORMERS)[name]
        values = dict(values)
        if isinstance(values.get("backbone_config"), dict):
            values["backbone_config"] = tf.ResNetConfig(**values["backbone_config"], out_features=["stage4"])
        config, given = getattr(tf, config)(**values), given()
        config._attn_implementation = attention
        # The library's default depends on the number of tokens of each expert, which no exporter supports.
        if hasattr(config, "num_experts_per_tok"):
            config._experts_implementation = "batched_mm"
        try:
            model = getattr(tf, kind)(config)
        except ValueError:
            # The library has this architecture in one form only.
            config._attn_implementation = "eager"
            model = getattr(tf, kind)(config)
        model = First(model, list(given))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() < 2 and parameter.is_floating_point():
                parameter.add_(0.05 * torch.randn_like(parameter))
    return model.eval(), given


class Named(nn.Module):
    """The result "out" of a segmentation model."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, pixel_values):
        return self.model(pixel_values)["out"]
