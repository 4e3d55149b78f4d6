package scrape

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"steelyard/internal/files"
)

// maxToken bounds the token file, in bytes.
const maxToken = 64 << 10

// A tokenFile reads a bearer token, again whenever the file has changed. Its errors name the file and never quote it.
type tokenFile struct {
	path  string
	seen  os.FileInfo // of the file that token was read from
	token string
}

// read returns the current token of the file.
func (f *tokenFile) read(ctx context.Context) (string, error) {
	info, err := files.Stat(ctx, f.path)
	if err != nil {
		return "", fmt.Errorf("reading bearer token: %w", err)
	}
	if f.seen != nil && os.SameFile(f.seen, info) && f.seen.Size() == info.Size() &&
		f.seen.ModTime().Equal(info.ModTime()) {
		return f.token, nil
	}
	token, err := Token(ctx, f.path)
	if err != nil {
		return "", err
	}
	f.token, f.seen = token, info
	return token, nil
}

// Token reads a bearer token.
func Token(ctx context.Context, path string) (string, error) {
	token, err := readToken(ctx, path)
	if err != nil {
		return "", fmt.Errorf("reading bearer token from %s: %w", path, err)
	}
	return token, nil
}

func readToken(ctx context.Context, path string) (string, error) {
	content, err := files.ReadAll(ctx, path, maxToken)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(content))
	switch {
	case token == "":
		return "", errors.New("the file is empty")
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return "", errors.New("the file has more than one word, or characters that no token has")
	}
	return token, nil
}
