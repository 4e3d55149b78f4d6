package prefix

import (
	"bytes"
	"encoding/binary"
	"math"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// text adds a string of JSON, given without its quotes, with the fewest escapes: clients spell the same text in
// different ways. One that is not whole is cut off before an escape that may continue.
func (w *writer) text(s []byte, whole bool) {
	var space [256]byte
	for len(s) > 0 {
		n := fewest(s)
		w.write(s[:n])
		s = s[n:]
		spelled, n := respelled(space[:0], s, whole)
		w.write(spelled)
		s = s[n:]
	}
}

// fewest returns how much of a string has the fewest escapes, so is as it is to be: that before the first \u or \/.
func fewest(s []byte) int {
	const (
		near   = 32   // bytes between escapes up to which a search for each is slower than looking at all bytes
		window = 1024 // bytes that are looked at before the next search
	)
	for at := 0; at < len(s); {
		i := bytes.IndexByte(s[at:], '\\')
		if i < 0 {
			break
		}
		at += i
		if isLong(s, at) {
			return at
		}
		if at += 2; i < near {
			next, found := firstLong(s[:min(at+window, len(s))], at)
			if found {
				return next
			}
			at = next
		}
	}
	return len(s)
}

// isLong reports whether the escape at a byte of a string is \u or \/, or breaks off. Of the characters that JSON has
// after a backslash, only these two are odd.
func isLong(s []byte, at int) bool { return at+1 == len(s) || s[at+1]&1 > 0 }

// firstLong returns where the first \u or \/ is in a string, from a byte on at which no escape has begun; or, if none
// is found, how far it has looked.
func firstLong(s []byte, from int) (at int, found bool) {
	const stride = 32
	for at = from; at+stride < len(s); at += stride {
		b := s[at : at+stride+1]
		if (longs(b[:9])|longs(b[8:17])|longs(b[16:25])|longs(b[24:33]))&highest == 0 {
			continue
		}
		for k := at; k < at+stride; k++ {
			if s[k] == '\\' && isLong(s, k) && !escaped(s[from:k]) {
				return k, true
			}
		}
	}
	if at > from && escaped(s[from:at]) {
		at++
	}
	return at, false
}

const each, highest = 0x0101010101010101, 0x8080808080808080 // byte of a word: its lowest, and highest bit

// longs has the highest bit of each of eight bytes that is a backslash, and maybe of bytes after one, where the next of
// the nine is odd.
func longs(b []byte) uint64 {
	these, next := binary.LittleEndian.Uint64(b[:8]), binary.LittleEndian.Uint64(b[1:9])
	these ^= each * '\\'
	return (these - each) &^ these & (next << 7)
}

// mostAtOnce is the number of escapes that are spelled at once.
const mostAtOnce = 40

// respelled appends the escapes \u and \/ at the beginning of a string as they are to be, at most mostAtOnce, and
// returns how much of the string they are. What breaks off is left out.
func respelled(out, s []byte, whole bool) (spelled []byte, n int) {
	for range mostAtOnce {
		if n == len(s) || s[n] != '\\' || !isLong(s, n) {
			break
		}
		if c := unit(s[n:]); c >= 0x800 && !utf16.IsSurrogate(c) { // most of them
			out = append(out, 0xe0|byte(c>>12), 0x80|byte(c>>6)&0xbf, 0x80|byte(c)&0xbf)
			n += len(`\u0000`)
			continue
		}
		c, size := unescaped(s[n:], whole)
		if size == 0 {
			return out, len(s)
		}
		out = appendRune(out, c)
		n += size
	}
	return out, n
}

// unescaped returns the character of \/ or \u, and the size of the escape; 0 if it breaks off, or is none. Halves of a
// pair become U+FFFD, as in encoding/json.
func unescaped(s []byte, whole bool) (c rune, size int) {
	const short, long = len(`\/`), len(`\u0000`)
	if len(s) >= short && s[1] == '/' {
		return '/', short
	}
	switch c = unit(s); {
	case c < 0:
		return 0, 0
	case !utf16.IsSurrogate(c):
		return c, long
	case len(s) < 2*long && !whole:
		return 0, 0
	}
	if pair := utf16.DecodeRune(c, unit(s[long:])); pair != utf8.RuneError {
		return pair, 2 * long
	}
	return utf8.RuneError, long
}

// unit returns the number of an escape \u0000 at the beginning of a string, negative if there is none.
func unit(s []byte) (c rune) {
	if len(s) < len(`\u0000`) || s[0] != '\\' || s[1] != 'u' {
		return -1
	}
	return rune(digits[s[2]])<<12 | rune(digits[s[3]])<<8 | rune(digits[s[4]])<<4 | rune(digits[s[5]])
}

// digits are the values of hexadecimal digits, negative for other bytes.
var digits = func() (values [256]int8) {
	for c := range values {
		values[c] = -1
	}
	for i, c := range []byte("0123456789abcdef") {
		values[c], values[bytes.ToUpper([]byte{c})[0]] = int8(i), int8(i)
	}
	return values
}()

// appendRune appends a character as a string of JSON has it, with the fewest escapes.
func appendRune(out []byte, c rune) []byte {
	if c >= ' ' && c != '"' && c != '\\' {
		return utf8.AppendRune(out, c)
	}
	const short, letters = "\"\\\b\f\n\r\t", `"\bfnrt`
	if i := strings.IndexByte(short, byte(c)); i >= 0 {
		return append(out, '\\', letters[i])
	}
	return append(out, '\\', 'u', '0', '0', '0'+byte(c>>4), "0123456789abcdef"[c&15])
}

// number adds a number as encoding/json reads it, a float64; and a word as it is.
func (w *writer) number(s []byte) {
	const exact = 1e15 // up to it, all whole numbers of a float64 are written as such
	if isNumber(s) && !isPlain(s) {
		if f, err := strconv.ParseFloat(string(s), 64); err == nil {
			var space [32]byte
			if f == math.Trunc(f) && math.Abs(f) < exact {
				w.write(strconv.AppendInt(space[:0], int64(f), 10))
			} else {
				w.write(strconv.AppendFloat(space[:0], f, 'e', -1, 64))
			}
			return
		}
	}
	w.write(s)
}

// isPlain reports whether a number is a whole one with a few digits, which has one spelling.
func isPlain(s []byte) bool {
	const fewDigits = 15
	for _, c := range s {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(s) <= fewDigits && (s[0] != '0' || len(s) == 1)
}
