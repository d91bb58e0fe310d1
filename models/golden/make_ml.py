#!/usr/bin/env python3
"""Writes models of the domain ai.onnx.ml, their inputs, and the results of ONNX Runtime: models/golden/ml/NAME, as `numbers` has its cases.

    pip install numpy onnx==1.23.2 onnxruntime==1.32.0 scikit-learn==1.9.1 skl2onnx==1.20.0 lightgbm==4.7.0 xgboost==3.2.0 onnxmltools==1.16.0
    python3 models/golden/make_ml.py                                      # writes the cases
    python3 models/golden/make_ml.py --check target/debug/eutectic 1 20   # runs new ones, of seeds 1 to 19, with the command

Half of the cases are scikit-learn's models (and LightGBM's and XGBoost's) after training on random data; the others are single ops with random
attributes. The number of rows is open.
"""
import pathlib
import sys
import warnings

import golden_cases
import numpy as np
from onnx import TensorProto, helper, numpy_helper

FOLDER = pathlib.Path(__file__).resolve().parent / "ml"
F32 = np.float32
ML = "ai.onnx.ml"
RELATIVE, ABSOLUTE = 1e-5, 1e-6
# These cases are always written, in addition to the trained models and every third one of the other cases.
ALWAYS = {"regressor_deep", "regressor_probit", "label_floats", "label_default", "binarizer", "vectorizer", "one_hot_0_int64"}


def op_model(op, inputs, outputs, version=3, **attributes):
    """A model of one node; inputs are arrays, whose first axis is open where they have two."""
    node = helper.make_node(op, list(inputs), outputs, domain=ML, **attributes)
    info = lambda name, array: helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(array.dtype), ["rows", *array.shape[1:]] if array.ndim == 2 else array.shape
    )
    graph = helper.make_graph(
        [node], "g", [info(*item) for item in inputs.items()], [helper.make_empty_tensor_value_info(name) for name in outputs]
    )
    sets = [helper.make_opsetid("", 17), helper.make_opsetid(ML, version)]
    return helper.make_model(graph, opset_imports=sets, ir_version=8)


def random_trees(rng, count, depth, features, modes, missing):
    """The node lists of trees, and the leaves as (tree, node)."""
    nodes = {key: [] for key in ["treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids", "missing_value_tracks_true"]}
    leaves = []

    def grow(tree, left):
        number = sum(1 for at in nodes["treeids"] if at == tree)
        at = len(nodes["treeids"])
        leaf = left == 0 or (left < depth and rng.random() < 0.2)
        values = [tree, number, int(rng.integers(features)), "LEAF" if leaf else str(rng.choice(modes)), float(F32(rng.integers(-3, 4) / 2)), 0, 0]
        for key, value in zip(nodes, [*values, int(missing and rng.random() < 0.5)]):
            nodes[key].append(value)
        if leaf:
            leaves.append((tree, number))
            return number
        nodes["truenodeids"][at] = grow(tree, left - 1)
        nodes["falsenodeids"][at] = grow(tree, left - 1)
        return number

    for tree in range(count):
        grow(tree, depth)
    return {f"nodes_{key}": value for key, value in nodes.items()}, leaves


ALL_MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
TRANSFORMS = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"]


def features(rng, width, rows=9, special=True, dtype=F32):
    """Rows of halves, so that comparisons meet equal numbers, with NaN and infinities."""
    x = (rng.integers(-4, 5, (rows, width)) / 2).astype(dtype)
    if special:
        x[rng.random(x.shape) < 0.15] = np.nan
        x[0, 0], x[1, -1] = np.inf, -np.inf
    return x


def weights_of(rng, leaves, targets, single, positive=False):
    """Weights of leaves: of one target for each tree, or of several for each leaf."""
    rows = []
    for tree, node in leaves:
        for target in [tree % targets] if single else range(targets):
            weight = rng.integers(1, 9) / 16 if positive else rng.integers(-9, 9) / 8
            rows.append((tree, node, target, float(weight)))
    return rows


def tree_regressors(rng):
    for mode in [[m] for m in ALL_MODES] + [ALL_MODES]:
        for targets, single in [(1, True), (3, True), (2, False)]:
            aggregate = str(rng.choice(["SUM", "AVERAGE", "MIN", "MAX"]))
            transform = str(rng.choice(TRANSFORMS[:4]))
            nodes, leaves = random_trees(rng, int(rng.integers(targets, 7)), int(rng.integers(1, 5)), 3, mode, rng.random() < 0.5)
            rows = weights_of(rng, leaves, targets, single)
            base = [0.25 * (at + 1) for at in range(targets)] if rng.random() < 0.5 else []
            x = features(rng, 3)
            attributes = dict(n_targets=targets, aggregate_function=aggregate, post_transform=transform, **nodes)
            for key, values in zip(["treeids", "nodeids", "ids", "weights"], zip(*rows)):
                attributes[f"target_{key}"] = list(values)
            if base:
                attributes["base_values"] = base
            name = f"regressor_{'all' if len(mode) > 1 else mode[0][7:].lower()}_{targets}{'' if single else '_spread'}"
            yield name, op_model("TreeEnsembleRegressor", {"x": x}, ["y"], **attributes), {"x": x}
    nodes, leaves = random_trees(rng, 4, 3, 3, ["BRANCH_LEQ"], False)
    # The scores of PROBIT are probabilities.
    rows = [(tree, node, target, weight / 8) for tree, node, target, weight in weights_of(rng, leaves, 1, True, True)]
    attributes = dict(n_targets=1, post_transform="PROBIT", **nodes)
    for key, values in zip(["treeids", "nodeids", "ids", "weights"], zip(*rows)):
        attributes[f"target_{key}"] = list(values)
    x = features(rng, 3)
    yield "regressor_probit", op_model("TreeEnsembleRegressor", {"x": x}, ["y"], **attributes), {"x": x}
    # A tree with branches on one side only. It is deep enough that its descent takes a loop.
    depth = 90
    nodes = dict(
        nodes_treeids=[0] * (2 * depth + 1),
        nodes_nodeids=list(range(2 * depth + 1)),
        nodes_featureids=[at % 3 for at in range(2 * depth + 1)],
        nodes_modes=["BRANCH_LT" if at % 2 == 0 and at < 2 * depth else "LEAF" for at in range(2 * depth + 1)],
        nodes_values=[-2.0 + (at % 11) / 8 for at in range(2 * depth + 1)],
        nodes_truenodeids=[at + 1 if at % 2 == 0 and at < 2 * depth else 0 for at in range(2 * depth + 1)],
        nodes_falsenodeids=[at + 2 if at % 2 == 0 and at < 2 * depth else 0 for at in range(2 * depth + 1)],
    )
    leaves = [at for at in range(2 * depth + 1) if nodes["nodes_modes"][at] == "LEAF"]
    weights = dict(target_treeids=[0] * len(leaves), target_nodeids=leaves, target_ids=[0] * len(leaves), target_weights=[at / 4 for at in leaves])
    x = features(rng, 3, 40)
    yield "regressor_deep", op_model("TreeEnsembleRegressor", {"x": x}, ["y"], n_targets=1, **nodes, **weights), {"x": x}
    nodes, leaves = random_trees(rng, 5, 4, 3, ["BRANCH_LEQ"], True)
    rows = weights_of(rng, leaves, 2, True)
    columns = list(zip(*rows))
    attributes = dict(nodes)
    attributes["nodes_values_as_tensor"] = numpy_helper.from_array(np.array(attributes.pop("nodes_values")) + 1e-9, "v")
    attributes |= dict(target_treeids=columns[0], target_nodeids=columns[1], target_ids=columns[2], n_targets=2)
    attributes["target_weights_as_tensor"] = numpy_helper.from_array(np.array(columns[3]), "w")
    x = features(rng, 3, dtype=np.float64)
    yield "regressor_f64", op_model("TreeEnsembleRegressor", {"x": x}, ["y"], **attributes), {"x": x}


def tree_classifiers(rng):
    kinds = [("two_alone", 2, "first"), ("two_both", 2, "both"), ("two_second", 2, "second"), ("three", 3, "single"), ("four_spread", 4, "both")]
    for kind, classes, which in kinds:
        for positive in [False, True]:
            for base in [0, 1, classes]:
                for transform in TRANSFORMS[:4]:
                    if rng.random() < 0.5:
                        continue
                    nodes, leaves = random_trees(rng, int(rng.integers(3, 7)), 3, 4, ["BRANCH_LEQ"], rng.random() < 0.3)
                    rows = weights_of(rng, leaves, classes, which != "both", positive)
                    if which in ("first", "second"):
                        rows = [(tree, node, int(which == "second"), weight) for tree, node, _, weight in rows]
                    attributes = dict(post_transform=transform, classlabels_int64s=[7, -2, 3, 11][:classes], **nodes)
                    for key, values in zip(["treeids", "nodeids", "ids", "weights"], zip(*rows)):
                        attributes[f"class_{key}"] = list(values)
                    if base:
                        attributes["base_values"] = [0.125 * (at + 1) for at in range(base)]
                    x = features(rng, 4)
                    name = f"classifier_{kind}_{'positive' if positive else 'mixed'}_{base}_{transform.lower()}"
                    yield name, op_model("TreeEnsembleClassifier", {"x": x}, ["label", "scores"], **attributes), {"x": x}
    nodes, leaves = random_trees(rng, 4, 3, 4, ["BRANCH_LT"], False)
    columns = list(zip(*weights_of(rng, leaves, 3, False, True)))
    attributes = dict(classlabels_int64s=[0, 1, 2], **nodes, class_treeids=columns[0], class_nodeids=columns[1], class_ids=columns[2], class_weights=columns[3])
    x = features(rng, 4, special=False).astype(np.int64)
    yield "classifier_integers", op_model("TreeEnsembleClassifier", {"x": x}, ["label", "scores"], **attributes), {"x": x}


def tree_ensembles(rng):
    """Version 5 of the domain, with sets."""
    for dtype in [F32, np.float64]:
        for aggregate in range(4):
            nodes, leaves, sets, roots = [], [], [], []

            def grow(left):
                at, mode = len(nodes), int(rng.integers(7))
                node = dict(featureids=int(rng.integers(3)), modes=mode, splits=float(rng.integers(-3, 4) / 2))
                node["missing_value_tracks_true"] = int(rng.random() < 0.4)
                nodes.append(node)
                # Sets follow each other in the order of nodes, each with a NaN at its end.
                if mode == 6:
                    # ONNX Runtime supports sets of integers only.
                    sets.extend([*rng.choice(np.arange(-4, 5), int(rng.integers(1, 6)), replace=False), np.nan])
                for side in ["true", "false"]:
                    leaf = left == 0 or rng.random() < 0.2
                    if leaf:
                        leaves.append((int(rng.integers(2)), float(rng.integers(-9, 9) / 8)))
                    node[f"{side}leafs"] = int(leaf)
                    node[f"{side}nodeids"] = len(leaves) - 1 if leaf else grow(left - 1)
                return at

            for _ in range(4):
                roots.append(grow(3))
            lists = {f"nodes_{key}": [node[key] for node in nodes] for key in nodes[0]}
            lists["nodes_modes"] = numpy_helper.from_array(np.array(lists["nodes_modes"], np.uint8), "m")
            lists["nodes_splits"] = numpy_helper.from_array(np.array(lists["nodes_splits"], dtype), "s")
            if sets:
                lists["membership_values"] = numpy_helper.from_array(np.array(sets, dtype), "v")
            lists["leaf_targetids"] = [target for target, _ in leaves]
            lists["leaf_weights"] = numpy_helper.from_array(np.array([weight for _, weight in leaves], dtype), "w")
            numbers = dict(tree_roots=roots, n_targets=2, aggregate_function=aggregate, post_transform=int(rng.integers(4)))
            x = features(rng, 3, dtype=dtype)
            yield f"ensemble_{aggregate}_{np.dtype(dtype).name}", op_model("TreeEnsemble", {"x": x}, ["y"], 5, **numbers, **lists), {"x": x}


def floats(rng, *shape):
    return [float(v) for v in rng.standard_normal(shape).astype(F32).ravel()]


def linear(rng):
    x = rng.standard_normal((7, 4)).astype(F32)
    for transform in TRANSFORMS[:4]:
        for count in [1, 3]:
            attributes = dict(coefficients=floats(rng, count, 4), intercepts=floats(rng, count), post_transform=transform)
            yield f"linear_regressor_{count}_{transform.lower()}", op_model("LinearRegressor", {"x": x}, ["y"], targets=count, **attributes), {"x": x}
            labels = [5, 3] if count == 1 else [4, 9, -1]
            yield f"linear_classifier_{count}_{transform.lower()}", op_model("LinearClassifier", {"x": x}, ["label", "scores"], classlabels_ints=labels, **attributes), {"x": x}
    attributes = dict(coefficients=floats(rng, 2, 4), intercepts=floats(rng, 2), classlabels_ints=[0, 1])
    for dtype in [np.float64, np.int64]:
        y = (3 * x).astype(dtype)
        yield f"linear_classifier_{np.dtype(dtype).name}", op_model("LinearClassifier", {"x": y}, ["label", "scores"], **attributes), {"x": y}


def vectors(rng):
    x = rng.standard_normal((7, 3)).astype(F32)
    for kernel in ["LINEAR", "POLY", "RBF", "SIGMOID"]:
        params = dict(kernel_type=kernel, kernel_params=[0.4, 0.3, float(rng.integers(2, 4))])
        for one_class in [0, 1]:
            attributes = dict(coefficients=floats(rng, 5), support_vectors=floats(rng, 5, 3), rho=[0.2], n_supports=5, one_class=one_class, **params)
            yield f"svm_regressor_{kernel.lower()}_{one_class}", op_model("SVMRegressor", {"x": x}, ["y"], **attributes), {"x": x}
        for classes in [2, 3, 4]:
            for probable in [False, True]:
                counts = [int(n) for n in rng.integers(1, 4, classes)]
                total, pairs = sum(counts), classes * (classes - 1) // 2
                attributes = dict(vectors_per_class=counts, support_vectors=floats(rng, total, 3), coefficients=floats(rng, classes - 1, total), rho=floats(rng, pairs))
                if probable:
                    attributes |= dict(prob_a=[-abs(v) - 0.5 for v in floats(rng, pairs)], prob_b=floats(rng, pairs))
                transform = str(rng.choice(TRANSFORMS[:4])) if not probable else "NONE"
                labels = [6, 2, 8, 1][:classes]
                name = f"svm_classifier_{kernel.lower()}_{classes}{'_probable' if probable else ''}"
                yield name, op_model("SVMClassifier", {"x": x}, ["label", "scores"], classlabels_ints=labels, post_transform=transform, **attributes, **params), {"x": x}
    for classes in [2, 3]:
        for positive in [False, True]:
            coefficients = [abs(v) if positive else v for v in floats(rng, classes, 3)]
            attributes = dict(coefficients=coefficients, rho=[0.1], classlabels_ints=[6, 2, 8][:classes], kernel_type="LINEAR", kernel_params=[0.0, 0.0, 3.0])
            yield f"svm_planes_{classes}_{positive}", op_model("SVMClassifier", {"x": x}, ["label", "scores"], **attributes), {"x": x}


def prepared(rng):
    x = rng.standard_normal((6, 4)).astype(F32)
    x[2] = 0
    whole = rng.integers(-3, 4, (6, 4))
    for name, array in [("f32", x), ("f64", x.astype(np.float64)), ("i64", whole), ("vector", x[0])]:
        for norm in ["MAX", "L1", "L2"]:
            yield f"normalizer_{norm.lower()}_{name}", op_model("Normalizer", {"x": array}, ["y"], norm=norm), {"x": array}
        for count in [1, 4]:
            attributes = dict(offset=floats(rng, count), scale=floats(rng, count))
            yield f"scaler_{count}_{name}", op_model("Scaler", {"x": array}, ["y"], **attributes), {"x": array}
    special = features(rng, 4, 6)
    yield "binarizer", op_model("Binarizer", {"x": x}, ["y"], threshold=0.5), {"x": x}
    for name, replaced in [("nan", float("nan")), ("number", 0.5)]:
        for count in [1, 4]:
            attributes = dict(imputed_value_floats=floats(rng, count), replaced_value_float=replaced)
            yield f"imputer_{name}_{count}", op_model("Imputer", {"x": special}, ["y"], **attributes), {"x": special}
    yield "imputer_whole", op_model("Imputer", {"x": whole}, ["y"], imputed_value_int64s=[9, 8, 7, 6], replaced_value_int64=-1), {"x": whole}
    for name, array, ids in [("rows", x, [2, 0, 2]), ("vector", x[0], [1, 3]), ("cube", x.reshape(2, 3, 4), [3])]:
        inputs = {"x": array, "ids": np.array(ids)}
        yield f"columns_{name}", op_model("ArrayFeatureExtractor", inputs, ["y"]), inputs
    inputs = {"x": x, "z": x[:, :2].copy()}
    yield "vectorizer", op_model("FeatureVectorizer", inputs, ["y"], inputdimensions=[4, 2]), inputs
    for zeros, array in [(1, whole), (0, whole.clip(-1, 2)), (1, whole.astype(F32))]:
        yield f"one_hot_{zeros}_{array.dtype.name}", op_model("OneHotEncoder", {"x": array}, ["y"], cats_int64s=[2, -1, 0, 1], zeros=zeros), {"x": array}
    yield "label_whole", op_model("LabelEncoder", {"x": whole}, ["y"], keys_int64s=[2, -1, 0, 2], values_floats=[0.5, 0.25, 8, 9]), {"x": whole}
    yield "label_default", op_model("LabelEncoder", {"x": whole}, ["y"], keys_int64s=[2, -1], values_int64s=[5, 7], default_int64=-9), {"x": whole}
    yield "label_floats", op_model("LabelEncoder", {"x": special}, ["y"], keys_floats=[0.5, float("nan"), -1.0], values_int64s=[5, 6, 7]), {"x": special}


def trained(rng):
    """Models after training."""
    from lightgbm import LGBMClassifier, LGBMRegressor
    from onnxmltools import convert_lightgbm, convert_xgboost
    from onnxmltools.convert.common.data_types import FloatTensorType as Floats
    from skl2onnx import to_onnx
    from sklearn import ensemble, linear_model, naive_bayes, neighbors, neural_network, preprocessing, svm, tree
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from xgboost import XGBClassifier, XGBRegressor

    seed = int(rng.integers(1000))
    x = rng.standard_normal((80, 4)).astype(F32)
    total = x @ rng.standard_normal(4) + np.sin(3 * x[:, 0])
    two, three = (total > 0).astype(np.int64), np.digitize(total, [-0.7, 0.7]).astype(np.int64)
    test = rng.standard_normal((9, 4)).astype(F32)
    unknown = test.copy()
    unknown[rng.random(test.shape) < 0.2] = np.nan
    holes = x.copy()
    holes[rng.random(x.shape) < 0.1] = np.nan
    scaler = preprocessing.StandardScaler
    classifiers = {
        "tree": tree.DecisionTreeClassifier(max_depth=4, random_state=seed),
        "forest": ensemble.RandomForestClassifier(5, max_depth=4, random_state=seed),
        "extra": ensemble.ExtraTreesClassifier(4, max_depth=3, random_state=seed),
        "boosting": ensemble.GradientBoostingClassifier(n_estimators=6, random_state=seed),
        "histogram": ensemble.HistGradientBoostingClassifier(max_iter=6, min_samples_leaf=4, random_state=seed),
        "ada": ensemble.AdaBoostClassifier(n_estimators=4, random_state=seed),
        "logistic": linear_model.LogisticRegression(),
        "sgd": linear_model.SGDClassifier(random_state=seed),
        "svc": svm.SVC(kernel="rbf"),
        "svc_poly": svm.SVC(kernel="poly"),
        "svc_linear": svm.LinearSVC(),
        "bayes": naive_bayes.GaussianNB(),
        "neighbors": neighbors.KNeighborsClassifier(3),
        "network": neural_network.MLPClassifier([6], max_iter=30, random_state=seed),
        "scaled": make_pipeline(scaler(), preprocessing.Normalizer(), linear_model.LogisticRegression()),
        "mixed": make_pipeline(
            ColumnTransformer([("a", scaler(), [0, 1]), ("b", preprocessing.MinMaxScaler(), [2, 3])]), ensemble.RandomForestClassifier(3, max_depth=3, random_state=seed)
        ),
    }
    for name, model in classifiers.items():
        for classes, labels in [("two", two), ("three", three)]:
            model.fit(x, labels)
            options = {} if name == "svc_linear" else {id(model): {"zipmap": False}}
            yield f"trained_{name}_{classes}", lambda: to_onnx(model, x[:1], options=options, target_opset={"": 17, ML: 3}), {"X": test}
    logistic = linear_model.LogisticRegression().fit(x, three)
    yield "trained_zip_map", lambda: to_onnx(logistic, x[:1], target_opset={"": 17, ML: 3}), {"X": test}
    regressors = {
        "tree": tree.DecisionTreeRegressor(max_depth=5, random_state=seed),
        "forest": ensemble.RandomForestRegressor(5, max_depth=4, random_state=seed),
        "boosting": ensemble.GradientBoostingRegressor(n_estimators=6, random_state=seed),
        "histogram": ensemble.HistGradientBoostingRegressor(max_iter=6, min_samples_leaf=4, random_state=seed),
        "svr": svm.SVR(),
        "ridge": linear_model.Ridge(),
        "imputed": make_pipeline(SimpleImputer(), scaler(), linear_model.Ridge()),
    }
    for name, model in regressors.items():
        gaps = name in ("histogram", "imputed")
        model.fit(holes if gaps else x, total)
        yield f"trained_{name}", lambda: to_onnx(model, x[:1], target_opset={"": 17, ML: 3}), {"X": unknown if gaps else test}
    types = [("X", Floats([None, 4]))]
    boosted = dict(n_estimators=5, max_depth=3)
    for classes, labels in [("two", two), ("three", three)]:
        light = LGBMClassifier(min_child_samples=3, verbose=-1, **boosted).fit(holes, labels)
        yield f"trained_lightgbm_{classes}", lambda: convert_lightgbm(light, initial_types=types, target_opset=15, zipmap=False), {"X": unknown}
        extreme = XGBClassifier(**boosted).fit(holes, labels)
        yield f"trained_xgboost_{classes}", lambda: convert_xgboost(extreme, initial_types=types, target_opset=15), {"X": unknown}
    light = LGBMRegressor(min_child_samples=3, verbose=-1, **boosted).fit(holes, total)
    yield "trained_lightgbm", lambda: convert_lightgbm(light, initial_types=types, target_opset=15), {"X": unknown}
    extreme = XGBRegressor(**boosted).fit(holes, total)
    yield "trained_xgboost", lambda: convert_xgboost(extreme, initial_types=types, target_opset=15), {"X": unknown}


def walked(model, inputs):
    """Evaluates a TreeEnsemble branch by branch. ONNX Runtime numbers its transforms otherwise, and onnx.reference leaves them out."""
    read = lambda value: numpy_helper.to_array(value) if isinstance(value, TensorProto) else value
    at = {a.name: read(helper.get_attribute_value(a)) for a in model.graph.node[0].attribute}
    members, sets = iter(at.get("membership_values", [])), {}
    for node, mode in enumerate(at["nodes_modes"]):
        if mode == 6:
            sets[node] = []
            while not np.isnan(member := next(members)):
                sets[node].append(member)
    tests = [np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal]

    def leaf(node, row):
        while True:
            x, mode = row[at["nodes_featureids"][node]], at["nodes_modes"][node]
            holds = x in sets[node] if mode == 6 else tests[mode](x, at["nodes_splits"][node])
            side = "true" if holds or np.isnan(x) and at["nodes_missing_value_tracks_true"][node] else "false"
            ends, node = at[f"nodes_{side}leafs"][node], at[f"nodes_{side}nodeids"][node]
            if ends:
                return node

    def score(row):
        ends = [leaf(root, row) for root in at["tree_roots"]]
        total = []
        for target in range(at["n_targets"]):
            weights = [at["leaf_weights"][end] for end in ends if at["leaf_targetids"][end] == target]
            how = [lambda w: sum(w) / len(ends), sum, min, max][at["aggregate_function"]]
            total.append(how(weights) if weights else 0.0)
        total, kind = np.array(total, np.float64), at["post_transform"]
        power = np.exp(total - total.max())
        if kind == 1:
            return power / power.sum()
        if kind == 2:
            return 1 / (1 + np.exp(-total))
        return np.where(total != 0, power, 0) / power[total != 0].sum() if kind == 3 else total

    return {"y": np.array([score(row) for row in inputs["x"]]).astype(inputs["x"].dtype)}


def cases(seed):
    """Returns names, models, inputs and outputs. Models that ONNX Runtime refuses are omitted."""
    rng = np.random.default_rng(seed)
    for group in [tree_regressors, tree_classifiers, tree_ensembles, linear, vectors, prepared, trained]:
        for name, model, inputs in group(rng):
            try:
                # Converters do not support all models of the newest scikit-learn.
                model = model() if callable(model) else model
                outputs = (walked if group is tree_ensembles else sessions_outputs)(model, inputs)
            except Exception as error:
                print(f"left out: {name}: {str(error).splitlines()[0][:150]}", file=sys.stderr)
                continue
            maps = {key for key, value in outputs.items() if isinstance(value, list)}
            # A list of maps has the scores as its values.
            outputs |= {key: np.array([list(row.values()) for row in outputs[key]], F32) for key in maps}
            yield name, model, inputs, outputs


def write():
    """Writes the trained models, every third one of the other cases, and those in ALWAYS."""
    single = 0
    for name, model, inputs, outputs in cases(1):
        always = name.startswith("trained") or name in ALWAYS
        single += not always
        if single % 3 and not always:
            continue
        golden_cases.write(FOLDER / name, model, inputs, outputs, RELATIVE, ABSOLUTE)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if sys.argv[1:2] == ["--check"]:
        made = (case for seed in range(int(sys.argv[3]), int(sys.argv[4])) for case in cases(seed))
        golden_cases.check(sys.argv[2], made, RELATIVE, ABSOLUTE)
    else:
        write()
