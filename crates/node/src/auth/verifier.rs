//! Verification of token signatures with ring, the only cryptography provider in the process.

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{ErrorKind, Result};
use jsonwebtoken::signature::{Error as Bad, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents,
    UnparsedPublicKey,
};

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(ErrorKind::UnsupportedAlgorithm.into()),
    verifier_factory: verifier,
    key_utils: KeyUtils::new_unimplemented(),
};

/// Installs the provider for token verification in this process.
pub(super) fn install() {
    // An error means that a provider is already installed, which is sufficient.
    PROVIDER.install_default().ok();
}

struct SignatureVerifier {
    algorithm: Algorithm,
    key: DecodingKey,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the library requires this signature"
)]
fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>> {
    // A key is valid for its own algorithm family only. Otherwise a public key can serve as a
    // shared secret.
    let fits = matches!(
        algorithm,
        Algorithm::EdDSA | Algorithm::ES256 | Algorithm::RS256
    );
    if !fits || key.family() != algorithm.family() {
        return Err(ErrorKind::InvalidAlgorithm.into());
    }

    Ok(Box::new(SignatureVerifier {
        algorithm: *algorithm,
        key: key.clone(),
    }))
}

impl Verifier<Vec<u8>> for SignatureVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> std::result::Result<(), Bad> {
        let checked = match (self.algorithm, self.key.kind()) {
            (Algorithm::EdDSA, DecodingKeyKind::SecretOrDer(key)) => {
                UnparsedPublicKey::new(&ED25519, key).verify(message, signature)
            }
            (Algorithm::ES256, DecodingKeyKind::SecretOrDer(key)) => {
                // RFC 7518 (3.4) concatenates both parts of the signature, without ASN.1.
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key).verify(message, signature)
            }
            (Algorithm::RS256, DecodingKeyKind::RsaModulusExponent { n, e }) => {
                RsaPublicKeyComponents { n, e }.verify(
                    &RSA_PKCS1_2048_8192_SHA256,
                    message,
                    signature,
                )
            }
            _ => Err(ring::error::Unspecified),
        };
        checked.map_err(|_| Bad::new())
    }
}

impl JwtVerifier for SignatureVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 7515, appendix A.2.
    const N: &str = "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ";
    const MESSAGE: &str = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
    const SIGNATURE: &str = "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";

    #[test]
    fn rfc_signature_example_verifies() {
        install();
        let key = DecodingKey::from_rsa_components(N, "AQAB").unwrap();
        let check = |message: &str| {
            jsonwebtoken::crypto::verify(SIGNATURE, message.as_bytes(), &key, Algorithm::RS256)
                .unwrap()
        };
        assert!(check(MESSAGE));
        assert!(!check(&MESSAGE.replace("eyJpc3Mi", "eyJpc3Nj")));
    }

    #[test]
    fn public_key_is_never_used_as_hmac_secret() {
        install();
        let key = DecodingKey::from_rsa_components(N, "AQAB").unwrap();
        for algorithm in [
            Algorithm::HS256,
            Algorithm::EdDSA,
            Algorithm::ES256,
            Algorithm::PS256,
        ] {
            let checked =
                jsonwebtoken::crypto::verify(SIGNATURE, MESSAGE.as_bytes(), &key, algorithm);
            assert!(checked.is_err(), "{algorithm:?}");
        }
    }
}
