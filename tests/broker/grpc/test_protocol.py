"""The generated messages are those of the ``.proto`` files."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from broker.grpc.protocol import definition_pb2, service_pb2

ROOT = Path(__file__).parents[3]
SOURCES = "broker/grpc/protocol"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, FileDescriptorProto]:
    from grpc_tools import protoc  # noqa: PLC0415 - a compiler, of use to this test alone

    out = tmp_path_factory.mktemp("proto") / "set"
    names = [f"{SOURCES}/{name}.proto" for name in ("definition", "service")]
    where = [ROOT, Path(protoc.__file__).parent / "_proto"]
    paths = [f"--proto_path={path}" for path in where]
    assert protoc.main(["protoc", *paths, f"--descriptor_set_out={out}", *names]) == 0
    found = FileDescriptorSet.FromString(out.read_bytes())
    return {file.name: file for file in found.file}


@pytest.mark.parametrize("module", [definition_pb2, service_pb2])
def test_the_generated_code_is_that_of_the_definition(
    module: object, compiled: dict[str, FileDescriptorProto]
) -> None:
    generated = FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(generated)  # type: ignore[attr-defined]  # of a generated module
    known = compiled[generated.name]
    for file in (generated, known):
        for message in file.message_type:
            _forget_json_names(message)
    assert generated == known


def _forget_json_names(message: object) -> None:
    """The compiler writes them out, a module does not."""
    for field in message.field:  # type: ignore[attr-defined]  # a DescriptorProto
        field.ClearField("json_name")
    for nested in message.nested_type:  # type: ignore[attr-defined]  # likewise
        _forget_json_names(nested)


def test_the_service_has_the_calls_that_are_handled() -> None:
    service = service_pb2.DESCRIPTOR.services_by_name["MessagingService"]
    assert service.full_name == "apache.rocketmq.v2.MessagingService"
    assert len(service.methods) == 17
