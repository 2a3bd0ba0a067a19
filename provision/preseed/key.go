package preseed

import (
	"crypto/pbkdf2"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
)

// deriveKey makes the key of a network out of its passphrase and its name (IEEE
// 802.11, J.4.1: PBKDF2 with HMAC-SHA-1, 4096 rounds, 256 bits).
func deriveKey(passphrase string, name []byte) (string, error) {
	key, err := pbkdf2.Key(sha1.New, passphrase, name, 4096, 32)
	if err != nil {
		return "", fmt.Errorf("derive the network's key: %w", err)
	}
	return hex.EncodeToString(key), nil
}
