#!/bin/sh
# Creates the test certificates: an authority, a server on loopback, a client. They protect nothing.
set -eu
cd "$(dirname "$0")"
key() { openssl ecparam -name prime256v1 -genkey -noout | openssl pkcs8 -topk8 -nocrypt -out "$1.key"; }
sign() {
  key "$1"
  openssl req -new -key "$1.key" -subj "/CN=$1" |
    openssl x509 -req -CA ca.pem -CAkey ca.key -CAcreateserial -days 36500 -extfile "$2" -out "$1.pem" 2>/dev/null
}
key ca
openssl req -x509 -new -key ca.key -subj "/CN=Orlog tests" -days 36500 -out ca.pem \
  -addext "basicConstraints=critical,CA:TRUE" -addext "keyUsage=critical,keyCertSign"
printf 'subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth\n' > server.ext
printf 'subjectAltName=DNS:orlog\nextendedKeyUsage=clientAuth\n' > client.ext
sign server server.ext
sign client client.ext
rm -f ca.key ca.srl server.ext client.ext
