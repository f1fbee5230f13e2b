"""Signed notes: what released tools have signed is opened, what was signed here too, and nothing else."""

import base64

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from billing.transparency import notes
from billing.transparency.notes import BadNote, Checkpoint, Verifier

# The example of the package `golang.org/x/mod/sumdb/note`.
NEUMANN = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
SAYING = (
    "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n"
)
SIGNED = (
    SAYING
    + "\n— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n"
)
SECRET = bytes(range(32))


def test_a_note_of_another_tool_is_opened() -> None:
    assert notes.opened(SIGNED, notes.verifier(NEUMANN)) == SAYING
    assert str(notes.verifier(NEUMANN)) == NEUMANN


def test_a_checkpoint_is_signed_and_read_again() -> None:
    signer = notes.signer(SECRET)
    note = signer.checkpoint(5, b"r" * 32)
    assert notes.checkpoint(notes.opened(note, signer.verifier)) == Checkpoint(signer.origin, 5, b"r" * 32)


def test_servers_with_one_secret_have_one_key() -> None:
    assert notes.signer(SECRET).verifier == notes.signer(SECRET).verifier
    assert notes.signer(SECRET).verifier != notes.signer(bytes(32)).verifier


def test_a_promise_is_no_checkpoint() -> None:
    signer = notes.signer(SECRET)
    with pytest.raises(BadNote):
        notes.checkpoint(notes.opened(signer.receipt(b"d" * 32), signer.verifier))


def test_a_cosignature_is_opened_with_the_witness_key() -> None:
    key = Ed25519PrivateKey.from_private_bytes(SECRET)
    witness = Verifier("witness", key.public_key().public_bytes_raw(), notes.COSIGNATURE)
    note = notes.signer(SECRET).checkpoint(5, b"r" * 32)
    text = note.partition("\n\n")[0] + "\n"
    at = 1_790_000_000
    signature = witness.id + at.to_bytes(8) + key.sign(notes.cosigned_text(text, at))
    cosigned = f"{note}— witness {base64.b64encode(signature).decode()}\n"
    assert notes.opened(cosigned, witness) == text
    assert notes.verifier(str(witness)) == witness
    with pytest.raises(BadNote):
        notes.opened(cosigned.replace("\n5\n", "\n6\n"), witness)


@pytest.mark.parametrize(
    "note",
    ["", SAYING, SIGNED[:-1], SIGNED.replace("think", "thought"), SIGNED.replace("PeterN", "Peter N")],
)
def test_what_the_key_did_not_sign_is_refused(note: str) -> None:
    with pytest.raises(BadNote):
        notes.opened(note, notes.verifier(NEUMANN))


@pytest.mark.parametrize("key", ["", "a+b", NEUMANN.replace("c7", "c8"), NEUMANN[:-4], "n+0+AA=="])
def test_a_malformed_key_is_refused(key: str) -> None:
    with pytest.raises(BadNote):
        notes.verifier(key)
