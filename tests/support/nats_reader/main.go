// Copyright (c) 2026, natsops maintainers
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// Reads JWTs, key files and .creds files with the libraries that nsc and natscli use, and logs in as natscli does.
// Each argument is KIND=VALUE; each line of the output is KIND, then what the library returned. The first error ends the
// program.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

func check(err error) {
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
}

// claims decodes a JWT, which verifies its signature, validates it, and prints the fields that the library knows.
func claims(token string) jwt.Claims {
	found, err := jwt.Decode(token)
	check(err)
	results := jwt.CreateValidationResults()
	found.Validate(results)
	for _, issue := range results.Issues {
		check(fmt.Errorf("%s: %s", found.ClaimType(), issue.Description))
	}
	text, err := json.Marshal(found)
	check(err)
	fmt.Println("jwt", string(text))
	return found
}

func main() {
	creds := ""
	for _, argument := range os.Args[1:] {
		kind, value, _ := strings.Cut(argument, "=")
		switch kind {
		case "jwt":
			content, err := os.ReadFile(value)
			check(err)
			claims(strings.TrimSpace(string(content)))
		case "key": // nsc/cmd/store/keys.go keyFromFile, StoreKey
			content, err := os.ReadFile(value)
			check(err)
			pair, err := nkeys.FromSeed(content)
			check(err)
			public, err := pair.PublicKey()
			check(err)
			_, raw, err := nkeys.DecodeSeed(content)
			check(err)
			same, err := nkeys.EncodeSeed(nkeys.PrefixByteAccount, raw)
			check(err)
			if string(same) != string(content) {
				check(fmt.Errorf("%s: nsc import keys: key already exists and is different", public))
			}
			fmt.Println("key", public)
		case "creds":
			creds = value
			content, err := os.ReadFile(value)
			check(err)
			token, err := jwt.ParseDecoratedJWT(content)
			check(err)
			user := claims(token).(*jwt.UserClaims)
			pair, err := jwt.ParseDecoratedUserNKey(content)
			check(err)
			public, err := pair.PublicKey()
			check(err)
			if public != user.Subject {
				check(fmt.Errorf("the seed is that of %s", public))
			}
			fmt.Println("creds", public)
		case "login":
			connection, err := nats.Connect(value, nats.UserCredentials(creds))
			check(err)
			check(connection.FlushTimeout(5 * time.Second))
			connection.Close()
			fmt.Println("login", value)
		}
	}
}
