package spelling

import "strings"

// longestTypo bounds the work for a long word, which is not a typing error.
const longestTypo = 64

// Nearest returns the word that was probably meant, or "" if none is near. Case, hyphens and underscores do not count.
func Nearest(word string, known []string) string {
	if len(word) > longestTypo {
		return ""
	}
	folded := fold(word)
	best, least := "", max(1, len(folded)/3)+1
	for _, k := range known {
		if d := distance(folded, fold(k)); d < least {
			best, least = k, d
		}
	}
	if best == "" {
		best = abbreviated(folded, known)
	}
	return best
}

// abbreviated returns the one word of which this is an abbreviation (trtllm) or that is the beginning of this one
// (tritonserver).
func abbreviated(folded string, known []string) string {
	found := ""
	for _, k := range known {
		f := fold(k)
		short := len(folded) >= 3 && folded[0] == f[0] && subsequence(folded, f)
		if short || len(f) >= 4 && strings.HasPrefix(folded, f) {
			if found != "" {
				return ""
			}
			found = k
		}
	}
	return found
}

var folding = strings.NewReplacer("-", "", "_", "", " ", "")

func fold(s string) string { return folding.Replace(strings.ToLower(s)) }

// subsequence reports whether the bytes of part occur in whole, in order.
func subsequence(part, whole string) bool {
	for i := range len(whole) {
		if part != "" && whole[i] == part[0] {
			part = part[1:]
		}
	}
	return part == ""
}

// distance returns the number of bytes to insert, delete or replace (Levenshtein), where two neighbours that changed
// places count as one.
func distance(a, b string) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			change := last[j]
			if a[i] != b[j] {
				change++
			}
			row[j+1] = min(change, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}

// DidYouMean returns ": did you mean WORD?", or "" if no word is near.
func DidYouMean(word string, known []string) string {
	if meant := Nearest(word, known); meant != "" {
		return ": did you mean " + meant + "?"
	}
	return ""
}
