#!/bin/sh
# Creates the test certificates: an authority, a server on loopback, a client, a pod, a node that is no pod, and a pod of
# another authority. They protect nothing.
set -eu
cd "$(dirname "$0")"
key() { openssl ecparam -name prime256v1 -genkey -noout | openssl pkcs8 -topk8 -nocrypt -out "$1.key"; }
authority() {
  key "$1"
  openssl req -x509 -new -key "$1.key" -subj "/CN=$2" -days 36500 -out "$1.pem" \
    -addext "basicConstraints=critical,CA:TRUE" -addext "keyUsage=critical,keyCertSign"
}
sign() {
  key "$2"
  printf 'subjectAltName=%s\nextendedKeyUsage=%s\n' "$3" "$4" > "$2.ext"
  openssl req -new -key "$2.key" -subj "/CN=$2" |
    openssl x509 -req -CA "$1.pem" -CAkey "$1.key" -CAcreateserial -days 36500 -extfile "$2.ext" -out "$2.pem" 2>/dev/null
  rm -f "$2.ext"
}
both=serverAuth,clientAuth
authority ca "Orlog tests"
authority other-ca "Other tests"
sign ca server DNS:localhost,IP:127.0.0.1 serverAuth
sign ca client DNS:orlog clientAuth
sign ca pod DNS:pods.orlog.internal,IP:127.0.0.1 $both
sign ca stranger DNS:other.internal,IP:127.0.0.1 $both
sign other-ca other DNS:pods.orlog.internal,IP:127.0.0.1 $both
rm -f ca.key other-ca.key ./*.srl
