package scrape

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// maxToken bounds the token file, in bytes.
const maxToken = 64 << 10

// A tokenFile reads a bearer token, again whenever the file has changed. Its
// errors name the file and never what is in it.
type tokenFile struct {
	path  string
	seen  os.FileInfo // of the file that token was read from
	token string
}

// read returns the token as the file has it now.
func (f *tokenFile) read() (string, error) {
	info, err := os.Stat(f.path)
	if err != nil {
		return "", fmt.Errorf("reading bearer token: %w", err)
	}
	if f.seen != nil && os.SameFile(f.seen, info) && f.seen.Size() == info.Size() && f.seen.ModTime().Equal(info.ModTime()) {
		return f.token, nil
	}
	token, err := readToken(f.path)
	if err != nil {
		return "", fmt.Errorf("reading bearer token from %s: %w", f.path, err)
	}
	f.token, f.seen = token, info
	return token, nil
}

func readToken(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxToken+1))
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(content))
	switch {
	case len(content) > maxToken:
		return "", fmt.Errorf("the file is longer than %d bytes", maxToken)
	case token == "":
		return "", errors.New("the file is empty")
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return "", errors.New("the file has more than one word, or characters that no token has")
	}
	return token, nil
}
