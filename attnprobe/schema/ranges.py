"""The ranges and choices of all settings that a type alone does not say: here and nowhere else.

A setting of a part is named by its class and argument; a class inherits what its ancestors' arguments have. Where a
constant in the source lists the choices, they are read from it.
"""

from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Lt

from attnprobe.schema.source import names_in
from attnprobe.schema.types import Name, Number

Whole = Annotated[int, Ge(0)]
Count = Annotated[int, Ge(1)]
Seed = Annotated[int, Ge(0), Le(2**32 - 1)]
NotNegative = Annotated[Number, Ge(0)]
Positive = Annotated[Number, Gt(0)]
Share = Annotated[Number, Gt(0), Lt(1)]
Dropout = Annotated[Number, Ge(0), Lt(1)]
Size = Annotated[int, Ge(1), Le(1_000_000)]

SPLITS = names_in("attnprobe.data.files.SPLITS")

DATA: dict[str, Any] = {
    "name": Name,
    "unseen_labels": Literal["error", "drop"],
    "rationale_kind": Literal[names_in("attnprobe.data.marks.KINDS")],
    "classes_from": Literal["labels", "candidates", "vocabulary"],
    "missing_vectors": Literal["zeros", "normal"],
    "tokenizer": Literal[names_in("attnprobe.data.text.TOKENIZERS")],
    "clean": list[Literal[names_in("attnprobe.data.text.CLEANING")]],  # type: ignore[misc]
    "token_rules": list[Literal[names_in("attnprobe.data.text.TOKEN_RULES")]],  # type: ignore[misc]
    "sentences": Literal[names_in("attnprobe.data.text.SENTENCES")] | None,
    "sentence_limits_on": list[Literal[SPLITS]],
    "most": dict[Literal[SPLITS], Count] | None,
    "path": str | dict[Literal[SPLITS], str] | None,
    "per_word": dict[str, str],
    "plant": Literal[names_in("attnprobe.data.plant.KINDS")] | None,
    "class_weight": Literal["none", "balanced_positive", "inverse_frequency"] | list[Positive],
    "label_delimiter": Annotated[str, "not empty"],
    "test_share": Share,
    "validation_share": Share,
    "split_seed": Seed,
    "seed": Seed,
    "embedding_size": Size,
    "num_workers": Whole,
    "max_vocabulary": Count | None,
    "min_length": Whole | None,
    "max_length": Count | None,
    "max_tokens": Count | None,
    "max_sentences": Count | None,
    "max_sentence_tokens": Count | None,
    "min_df": Count,
    "batch_size": Count,
    "eval_batch_size": Count,
}
OPTIMIZER: dict[str, Any] = {"lr": NotNegative, "weight_decay": NotNegative, "eps": NotNegative, "betas": list[Dropout]}

CLASSES: dict[str, dict[str, Any]] = {
    "attnprobe.models.controls.RationaleAttention": {"mass": Annotated[Number, Ge(0), Le(1)]},
    "attnprobe.models.controls.FirstAttention": {"mass": Annotated[Number, Ge(0), Le(1)]},
    "attnprobe.models.controls.RandomAttention": {"spread": NotNegative},
    "attnprobe.models.controls.PositionAttention": {"longest": Count},
    "attnprobe.models.lexicon.LexiconAttention": {"scale": NotNegative, "buckets": Count},
    "attnprobe.models.objectives.Deception": {"weight": NotNegative},
    "attnprobe.data.module.TextDataModule": DATA,
    "attnprobe.data.sources.FileSource": {"path": DATA["path"]},
    "attnprobe.data.sources.HubSource": {"timeout": Positive},
    "attnprobe.data.sources.TestbedSource": {
        "kind": Literal["reviews", "stories"],
        "train_size": Size,
        "validation_size": Size,
        "test_size": Size,
        "seed": Seed,
        "hops": Annotated[int, Ge(1), Le(3)],
    },
    "attnprobe.models.encoders.LSTMEncoder": {"hidden_size": Size},
    "attnprobe.models.encoders.GRUEncoder": {"hidden_size": Size, "dropout": Dropout},
    "attnprobe.models.encoders.NoEncoder": {"dropout": Dropout},
    "attnprobe.models.encoders.CNNEncoder": {"kernel_sizes": list[Count], "filters": Size, "dropout": Dropout},
    "attnprobe.models.encoders.AverageEncoder": {"hidden_size": Size},
    "attnprobe.models.pretrained.model.PretrainedClassifier": {
        "name": Name,
        "heads": list[Whole] | None,
        "rows": Literal["pooled", "all"],
        "max_pieces": Annotated[int, Ge(8)] | None,
        "removal": Literal["delete", "mask"],
    },
    "attnprobe.models.transformer.TransformerEncoder": {
        "hidden_size": Size,
        "layers": Annotated[int, Ge(1), Le(1000)],
        "heads": Annotated[int, Ge(1), Le(10_000)],
        "inner_size": Size | None,
        "dropout": Dropout,
    },
    "attnprobe.models.attention.AdditiveAttention": {"inner_size": Size | None},
    "attnprobe.models.decoders.QuestionDecoder": {"inner_size": Size | None},
    "attnprobe.models.classifier.Recipe": {
        "attention_weight_decay": NotNegative | None,
        "reduction": Literal["sum", "mean"],
        "selection_metric": Literal["accuracy", "exact_match", "label_accuracy", "f1_macro", "roc_auc", "pr_auc", "loss"],
        "skip_epochs": Whole,
        "warmup": Annotated[Number, Ge(0), Lt(1)] | None,
    },
    "attnprobe.models.objectives.MaskedWords": {"share": Annotated[Number, Ge(0), Le(1)]},
    "attnprobe.models.objectives.Divergence": {"weight": NotNegative},
    "attnprobe.probes.permutation.Permutation": {"samples": Count},
    "attnprobe.importance.attribution.Attribution": {
        "baseline": Literal[names_in("attnprobe.importance.attribution.BASELINES")],
    },
    "attnprobe.importance.attribution.Perturbation": {"samples": Count},
    "attnprobe.importance.integrated_gradients.IntegratedGradients": {
        "steps": Count,
        "most_steps": Count,
        "gap": Positive,
    },
    "attnprobe.importance.smooth_grad.SmoothGrad": {"noise": Positive},
    "attnprobe.importance.gradient_shap.GradientShap": {"noise": NotNegative},
    "attnprobe.importance.lime.Lime": {"width": Positive, "alpha": Positive},
    "attnprobe.importance.occlusion.Occlusion": {"window": Count},
    "attnprobe.importance.leave_one_out.member.LeaveOneOut": {
        "tolerance": Annotated[Number, Ge(0), Lt(1)],
        "chunk": Count,
    },
    "attnprobe.probes.correlation.Correlation": {"top": Annotated[int, Ge(2)]},
    "attnprobe.probes.agreement_matrix.AgreementMatrix": {"top": Count},
    "attnprobe.probes.faithfulness.Faithfulness": {
        "operators": list[Literal[names_in("attnprobe.erasure.words.OPERATORS")]],  # type: ignore[misc]
        "thresholds": list[Share],
    },
    "attnprobe.probes.order_limits.OrderLimits": {"beam": Count},
    "attnprobe.probes.novelty.Novelty": {
        "operators": list[Literal[names_in("attnprobe.erasure.words.OPERATORS")]],  # type: ignore[misc]
        "share": Share,
        "reference": Annotated[int, Ge(2)],
    },
    "attnprobe.probes.soft_erasure.SoftErasure": {"samples": Count},
    "attnprobe.probes.subsets.Subsets": {"most_words": Annotated[int, Ge(1), Le(16)]},
    "attnprobe.probes.erasure.Erasure": {"random_orders": Count, "nodes": Whole},
    "attnprobe.probes.adversarial.Adversarial": {
        "epsilon": Annotated[Number, Ge(0), Le(1)],
        "restarts": Whole,
        "steps": Whole,
        "learning_rate": Positive,
        "penalty": NotNegative,
        "diversity": NotNegative,
        "start_scale": NotNegative,
    },
    "attnprobe.studies.audit.Audit": {"seeds": list[Seed], "minutes": Positive},
    "attnprobe.studies.wiegreffe.Wiegreffe": {
        "tests": list[Literal[names_in("attnprobe.studies.wiegreffe.TESTS")]],  # type: ignore[misc]
        "seeds": list[Seed],
        "weights": list[NotNegative],
    },
    "torch.optim.adam.Adam": OPTIMIZER,
    "torch.optim.adamw.AdamW": OPTIMIZER,
    "torch.optim.lr_scheduler.ReduceLROnPlateau": {
        "factor": Share,
        "patience": Whole,
        "cooldown": Whole,
        "threshold": NotNegative,
        "eps": NotNegative,
    },
    "lightning.pytorch.trainer.trainer.Trainer": {
        "precision": Literal[
            "32-true", "64-true", "16-true", "bf16-true", "16-mixed", "bf16-mixed", "transformer-engine",
            "transformer-engine-float16", "32", "64", "16", "bf16", 32, 64, 16,
        ],
        "num_nodes": Count,
    },
}  # fmt: skip
"""Class, by the module it is written in → argument → type."""
