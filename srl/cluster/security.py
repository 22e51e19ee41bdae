"""Credentials of a run: a CA and a server certificate of its own, and a token of 256 bits. Secrets never appear in argv."""

from __future__ import annotations

import datetime
import hmac
import json
import os
import platform
import secrets
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO

from srl.core.errors import UserError
from srl.core.load import load
from srl.core.machine import version_of

SERVER_NAME = "controller.srl"
"""The name in the certificate: checked whatever the address is."""

_FILES = ("ca.crt", "tls.crt", "tls.key", "token")
_DAYS = 90
_PACKAGE = "really-scalable-rl"


@dataclass(frozen=True, slots=True)
class Join:
    """The address and secrets that a supervisor needs to join a run."""

    run: str
    address: str
    ca: str = field(repr=False)
    token: str = field(repr=False)
    version: str = field(default_factory=lambda: version_of(_PACKAGE))
    """Of the package, on the host of the controller."""

    def check_version(self) -> None:
        """UserError if this host has another version of the package."""
        if (own := version_of(_PACKAGE)) != self.version:
            raise UserError(
                f"host {platform.node()} must have the version of srl that the controller has",
                ("found", f"{own or 'none'} here, {self.version or 'none'} there"),
                ("try", "install the same version on all hosts"),
            )

    def dump(self) -> str:
        """One line of JSON, for a pipe."""
        return json.dumps(asdict(self))

    def write(self, path: Path) -> None:
        """Into a file that only its owner can read."""
        write_private(path, self.dump() + "\n")

    @staticmethod
    def read_file(path: Path) -> Join:
        """UserError if other users can read the file too."""
        with path.open() as file:
            if (mode := os.fstat(file.fileno()).st_mode) & 0o007:
                raise UserError(
                    "the join file must not be readable by other users",
                    ("found", f"{path} with mode {mode & 0o777:o}"),
                    ("try", f"chmod 600 {path}, then start the run again, since others may know its token"),
                )
            return Join.read(file, str(path))

    @staticmethod
    def read(file: IO[str], name: str = "standard input") -> Join:
        """From the first line of a file."""
        try:
            return load(Join, json.loads(file.readline()))
        except (OSError, ValueError, UserError) as error:
            expected = ("expected", "the line that the controller wrote for its supervisors")
            raise UserError("no join information", ("from", name), expected) from error


@dataclass(frozen=True, slots=True)
class Credentials:
    """The secrets of the controller: PEM texts and the token."""

    ca: bytes
    certificate: bytes
    key: bytes = field(repr=False)
    token: str = field(repr=False)

    def admits(self, token: str | bytes) -> bool:
        """Compared in constant time."""
        given = token.encode() if isinstance(token, str) else token
        return hmac.compare_digest(given, self.token.encode())

    def files(self) -> dict[str, str]:
        """Name -> content of the files that `read` reads. All but the first two are secret."""
        texts = (self.ca, self.certificate, self.key, self.token.encode())
        return {name: text.decode() for name, text in zip(_FILES, texts, strict=True)}

    @staticmethod
    def read(folder: Path) -> Credentials:
        """From the files of a folder."""
        try:
            ca, certificate, key, token = ((folder / name).read_bytes() for name in _FILES)
        except OSError as error:
            expected = ("expected", f"the files {', '.join(_FILES)}")
            raise UserError(f"no credentials in {folder}", ("cause", error.strerror or str(error)), expected) from error
        return Credentials(ca, certificate, key, token.decode().strip())


def write_private(path: Path, text: str) -> None:
    """Into a new file that only its owner can read; in one step, so that nobody reads a part."""
    aside = path.with_name(f".tmp-{path.name}")
    aside.unlink(missing_ok=True)
    with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    aside.replace(path)


def new_credentials() -> Credentials:
    """A CA for this run alone: it signs one server certificate, and its key is not kept."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import NameOID
    except ImportError as error:
        raise UserError("a run over several hosts needs the package cryptography", ("try", "pip install cryptography")) from error

    def name(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    ca_key, server_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    identifier = x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key())

    def builder(subject: str, public_key: ec.EllipticCurvePublicKey, *, ca: bool) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(name(subject))
            .issuer_name(name("srl run"))
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))  # clocks differ
            .not_valid_after(now + datetime.timedelta(days=_DAYS))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        )

    usage = x509.KeyUsage(
        key_cert_sign=True, crl_sign=False, digital_signature=False, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    authority = builder("srl run", ca_key.public_key(), ca=True)
    ca = authority.add_extension(identifier, critical=False).add_extension(usage, critical=True).sign(ca_key, hashes.SHA256())
    names = x509.SubjectAlternativeName([x509.DNSName(SERVER_NAME)])
    server = builder(SERVER_NAME, server_key.public_key(), ca=False).add_extension(names, critical=False)
    pem = serialization.Encoding.PEM
    private = server_key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    signed = server.sign(ca_key, hashes.SHA256())
    return Credentials(ca.public_bytes(pem), signed.public_bytes(pem), private, secrets.token_urlsafe(32))
