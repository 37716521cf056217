"""Certificates of a test's own, made by openssl(1) in a temporary folder.

    ca = Authority(folder / "ca")
    server = ca.issue("server", "DNS:localhost", "IP:127.0.0.1")   # server.cert, server.key: paths
    ca.revoke(server); ca.crl()                                    # the path of a list
"""
import os
import pathlib
import ssl
import subprocess

import pytest

PATIENCE = 60
MODULES = [pathlib.Path(folder) / "holdfast-tls.so" for folder in os.environ.get("HOLDFAST_MODULE_DIR", "").split(":")]
CONFIG = """
[ca]
default_ca = this
[this]
database = {folder}/index.txt
serial = {folder}/serial
new_certs_dir = {folder}
certificate = {folder}/ca.pem
private_key = {folder}/ca.key
default_md = sha256
default_days = 30
default_crl_days = {crl_days}
policy = any
unique_subject = no
copy_extensions = none
[any]
commonName = optional
"""


def openssl(*words, text=None):
    subprocess.run(["openssl", *map(str, words)], input=text, capture_output=True, text=True, check=True, timeout=PATIENCE)


def new_key(path, passphrase=None):
    path.touch(0o600)
    locked = ["-aes-256-cbc", "-pass", f"pass:{passphrase}"] if passphrase else []
    openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", *locked, "-out", path)
    path.chmod(0o600)
    return path


class Certificate:
    def __init__(self, cert, key):
        self.cert, self.key = cert, key


class Authority:
    def __init__(self, folder, name="authority of a test"):
        if not any(module.exists() for module in MODULES):
            pytest.skip("built without TLS")
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True)
        self.pem, self.name = self.folder / "ca.pem", name
        self.config = self.folder / "ca.conf"
        (self.folder / "index.txt").touch()
        (self.folder / "serial").write_text("1000\n")
        self.config.write_text(CONFIG.format(folder=self.folder, crl_days=30))
        new_key(self.folder / "ca.key")
        openssl("req", "-x509", "-new", "-key", self.folder / "ca.key", "-out", self.pem, "-days", 30, "-subj", f"/CN={name}",
                "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign")

    def issue(self, name, *alternatives, begins=None, ends=None, key=None, common=None, usage=None):
        """alternatives: as openssl has them: "DNS:localhost"; dates as "20200101000000Z"; common: another CN than the name, "": none; usage: for
        what alone it is, "clientAuth"."""
        made = Certificate(self.folder / f"{name}.pem", key or new_key(self.folder / f"{name}.key"))
        request, extensions = self.folder / f"{name}.csr", self.folder / f"{name}.ext"
        subject = f"/CN={name if common is None else common}" if common != "" else "/"
        openssl("req", "-new", "-key", made.key, "-out", request, "-subj", subject)
        extensions.write_text("basicConstraints=CA:FALSE\n" +
                              (f"subjectAltName={','.join(alternatives)}\n" if alternatives else "") +
                              (f"extendedKeyUsage={usage}\n" if usage else ""))
        dates = (["-startdate", begins] if begins else []) + (["-enddate", ends] if ends else [])
        openssl("ca", "-batch", "-config", self.config, "-in", request, "-out", made.cert, "-notext", "-extfile", extensions,
                *dates)
        return made

    def revoke(self, certificate):
        openssl("ca", "-config", self.config, "-revoke", certificate.cert)

    def crl(self, name="crl.pem"):
        openssl("ca", "-config", self.config, "-gencrl", "-out", self.folder / name)
        return self.folder / name


def client_context(ca=None, certificate=None, version=None):
    """For a client of Python's. Without ca it trusts nobody in particular."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if ca:
        context.load_verify_locations(ca.pem)
    else:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if certificate:
        context.load_cert_chain(certificate.cert, certificate.key)
    if version:
        context.minimum_version = context.maximum_version = version
    return context
