"""The runtime of manifests/kserve under the contract of KServe's controller and its clients.

The controller itself is not run: it replaces {{.Name}} by the name of the InferenceService, and its
storage initializer writes the files of storageUri to /mnt/models before the container starts.
"""

import asyncio
import shutil

import numpy as np
import pytest
import yaml
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig

from conftest import MODELS, ZOO, Sample, run_program

MANIFEST = ZOO.parent.parent.parent / "manifests" / "kserve" / "runtime.yaml"

# Usual file names: XGBoost's and KServe's runtimes accept .bst, .json and .ubj, LightGBM's .bst.
FILES = {"small": "model.bst", "multi": "model.ubj", "light": "model.bst"}


def arguments(name, folder):
    """The runtime's arguments after substitution by KServe's controller, with free ports."""
    container = yaml.safe_load(MANIFEST.read_text())["spec"]["containers"][0]
    assert container["name"] == "kserve-container"
    filled = [argument.replace("{{.Name}}", name) for argument in container["args"]]
    filled = [argument.replace("/mnt/models", str(folder)) for argument in filled]
    ports = {"--http_port=8080": "--http_port=0", "--grpc_port=9000": "--grpc_port=0"}
    assert set(ports) <= set(filled)
    return [ports.get(argument, argument) for argument in filled]


def local(address):
    """The server listens on all addresses."""
    return f"127.0.0.1:{address.rsplit(':', 1)[1]}"


async def check(server, model, sample):
    """All protocols of the runtime return the outputs of the library."""
    base = f"http://{local(server.http)}"
    first, second = (InferenceRESTClient(RESTConfig(protocol=version)) for version in ("v1", "v2"))
    kept = np.isfinite(sample.rows).all(axis=1)
    assert kept.any()
    instances = {"instances": sample.rows[kept].tolist()}
    for client in (first, second):
        assert await client.is_server_live(base) is True
        assert await client.is_model_ready(base, model) is True
    answer = await first.infer(base, instances, model_name=model)
    np.testing.assert_allclose(answer["predictions"], sample.value[kept], rtol=1e-6)
    answer = await first.explain(base, model, instances)
    explained = np.array(answer["explanations"])
    np.testing.assert_allclose(explained, sample.contribs[kept], rtol=1e-4, atol=1e-5)
    tensor = InferInput("input", list(sample.rows.shape), sample.datatype)
    tensor.set_data_from_numpy(sample.rows, binary_data=True)
    request = InferRequest(model, [tensor])
    for answer in (
        await second.infer(base, request, model_name=model),
        await InferenceGRPCClient(local(server.grpc)).infer(request),
    ):
        value = answer.outputs[0].as_numpy().reshape(sample.value.shape)
        np.testing.assert_allclose(value, sample.value, rtol=1e-6)


@pytest.mark.parametrize("model", sorted(MODELS))
def test_a_pod_as_the_controller_makes_it(tmp_path, model):
    shutil.copy(ZOO / MODELS[model], tmp_path / FILES[model])
    (tmp_path / "README.md").write_text("beside the model")
    with run_program(arguments("fraud", tmp_path)) as server:
        asyncio.run(check(server, "fraud", Sample(model)))


def test_each_folder_is_a_model_without_a_name(tmp_path):
    for model, file in MODELS.items():
        (tmp_path / model).mkdir()
        shutil.copy(ZOO / file, tmp_path / model / FILES[model])
    unnamed = [word for word in arguments("", tmp_path) if not word.startswith("--model_name")]
    with run_program(unnamed) as server:
        for model in MODELS:
            asyncio.run(check(server, model, Sample(model)))


def test_the_runtime_keeps_what_the_webhook_of_kserve_asks():
    runtime = yaml.safe_load(MANIFEST.read_text())
    assert (runtime["apiVersion"], runtime["kind"]) == (
        "serving.kserve.io/v1alpha1",
        "ClusterServingRuntime",
    )
    assert set(runtime["spec"]["protocolVersions"]) == {"v1", "v2", "grpc-v2"}
    priorities = {}
    for form in runtime["spec"]["supportedModelFormats"]:
        priorities.setdefault(form["name"], set()).add(form.get("priority"))
        # A version without autoSelect has no priority.
        assert ("priority" in form) == form.get("autoSelect", False)
    # The versions of a format have the same priority.
    assert all(len(found) == 1 for found in priorities.values())
    assert min(priorities["xgboost"] | priorities["lightgbm"]) > 2
