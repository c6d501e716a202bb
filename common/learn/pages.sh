# Shows the pages in the terminal. A part of ./learn.
# shellcheck shell=bash

# The name of a page: of a chapter, as 4, or of another one, as walk or questions.
page_named() {
    local other=${1:-}
    [[ $other != walk ]] || other=walk_through
    [[ $other != models ]] || other=anatomy
    if [[ $other =~ ^[a-z_]+$ && -e docs/$other.md ]]; then echo "$other"; else slug_of "$other"; fi
}

# Shows a page as text, in a terminal with a pager.
read_page() {
    local page pager
    page=$(page_named "${1:-}")
    if [[ ! -t 1 ]]; then
        page_text "$page" "" ""
        return
    fi
    read -ra pager <<<"${PAGER:-less -R}"
    command -v "${pager[0]}" >/dev/null || pager=(cat)
    page_text "$page" $'\033[1m' $'\033[0m' | LESS=${LESS:-R} LESSCHARSET=utf-8 "${pager[@]}" || true
}

# Converts a page to text of 80 columns. $2 and $3 begin and end bold text. Code is indented; figures
# become their path and description; hints become the command that shows them.
page_text() {
    local number=models # whose exercises are on anatomy's page
    [[ ! $1 =~ ^([0-9]+)_ ]] || number=$((10#${BASH_REMATCH[1]}))
    inline_text <"docs/$1.md" | LC_ALL=C awk -v bold="$2" -v normal="$3" -v number="$number" '
        function width(text) { gsub(/[\001\002\200-\277]/, "", text); return length(text) }
        function out(text) { gsub(/\001/, bold, text); gsub(/\002/, normal, text); print text }
        function spaces(count) { return sprintf("%" count "s", "") }
        # Wraps a paragraph; its lines after the first are indented. Bold text ends at a line end.
        function wrap(text, indent, words, count, i, line, open, was) {
            count = split(text, words, / +/)
            for (i = 1; i <= count; i++) {
                if (line != "" && width(line) + 1 + width(words[i]) > 80) {
                    out(line (open ? "\002" : ""))
                    line = spaces(indent) (open ? "\001" : "") words[i]
                } else line = line (i > 1 ? " " : "") words[i]
                was = words[i]
                open += gsub(/\001/, "", was) - gsub(/\002/, "", was)
            }
            out(line)
        }
        # Prints the rows of a table in columns, or one after another if they are too wide.
        function end_table(i, j, total, line, cells, count) {
            for (j in widest) { total += widest[j] + 2; }
            for (i = 1; i <= rows; i++) {
                count = split(row[i], cells, / *\003 */)
                line = ""
                for (j = 1; j <= count; j++)
                    line = line cells[j] (j == count ? "" : total > 82 ? " | " : spaces(widest[j] + 2 - width(cells[j])))
                if (total > 82) wrap(line, 4); else out(line)
            }
            rows = 0
            split("", widest)
        }
        /^ *```mermaid/ { print "  (a diagram: ./learn site draws it)"; diagram = code = 1; next }
        /^ *```/ { as_it_is = $0 ~ /^```text/ && !code; map = diagram = 0; code = !code; next }
        diagram { next }
        code {
            # The map is as wide as the page.
            if (as_it_is && !map && !(map = $0 ~ /tokens .* embed /)) as_it_is = 0
            print (as_it_is ? "" : "  ") $0
            next
        }
        /^ *<!--.*-->$/ { next }
        !/^\|/ && rows { end_table() }
        /^\|[-:| ]*\|$/ { next }
        /^\|/ {
            gsub(/^\| *| *\|$/, ""); gsub(/\\\|/, "\004"); gsub(/\|/, "\003"); gsub(/\004/, "|")
            row[++rows] = $0
            count = split($0, cells, / *\003 */)
            for (j = 1; j <= count; j++) if (width(cells[j]) > widest[j]) widest[j] = width(cells[j])
            next
        }
        /^\$\$/ { formula = !formula; next }
        formula { print "    " $0; next }
        /^#/ { exercise = $0 ~ /^### Exercise/ ? $3 : ""; hidden = 0; out("\001" $0 "\002"); next }
        /^<details>/ && exercise {
            if (!hidden++) { sub(/.*\./, "", exercise); print "Hint: ./learn exercise " number " --hint " exercise }
            folded = 1
        }
        /^<\/details>/ { folded = 0; next }
        folded { next }
        { gsub(/<\/?(details|summary)>/, "") }
        { match($0, /^ *([-*]|[0-9]+\.) +/); wrap($0, RSTART ? RLENGTH : 0) }
        END { if (rows) end_table() }'
}

# Keeps the text of links and images, marks bold text, and writes mathematics with characters that
# exist; leaves code as it is.
inline_text() {
    # shellcheck disable=SC2016
    sed -E '/^ *```/,/^ *```/b
        s|!\[([^]]*)\]\((\.\./)?([^)]*)\)|Figure \3: \1|g; s|\[([^]]*)\]\([^)]*\)|\1|g
        s|\*\*([^*]+)\*\*|\x01\1\x02|g; s|^> ?||
        s/([_^])\{(\w+)\}/\1\2/g
        /\\begin/ { s/\\\\/;/g; s/&/ /g; s/\\begin\{[a-z]*\}/[/g; s/\\end\{[a-z]*\}/]/g; }
        s/\\(mathrm|text|mathcal|operatorname)\{([^{}]*)\}/\2/g; s/\\([!,;]|(left|right|[bB]igg?[lr]?)\b)//g
        s/\\q?quad|\\ /  /g; s/\\\{/[/g; s/\\\}/]/g; s/\\(cos|sin|ln|log|exp|min|max|tanh)([^a-z]|$)/\1\2/g
        s/\\underset\{([^{}]*)\}\{([^{}]*)\}/\2_\1/g; s/\\(argmax|Pr|det|tr|operatorname)\b/\1/g
        s/\\l?dots/…/g; s/\\approx/≈/g; s/\\sim\b/~/g; s/\\times/×/g; s/\\pm/±/g; s/\\to\b/→/g; s/\\ne\b/≠/g
        s/\\bar *\{\\tilde *(\w)\}/\1̃̄/g; s/\\bar *\{(.)\}/\1̄/g; s/\\binom *\{([^{}]*)\} *\{([^{}]*)\}/C(\1, \2)/g; s/\\bar +(.)/\1̄/g; s/\\tilde *\{?(\w)\}?/\1̃/g; s/\\mathrel\{(.)\}/\1/g; s/\\leftarrow/←/g
        s/\\(Long)?rightarrow/→/g; s/\\(Long)?Rightarrow/⟹/g; s/\\langle/⟨/g; s/\\rangle/⟩/g; s/\\mid/|/g
        s/\\(lfloor|lceil)/[/g; s/\\(rfloor|rceil)/]/g; s/\\Phi/Φ/g; s/\\rho/ρ/g; s/\\alpha/α/g; s/\\gamma/γ/g
        s/\\mu([^a-z]|$)/μ\1/g; s/\\epsilon/ε/g; s/\\Gamma/Γ/g; s/\\Delta/Δ/g; s/\\delta/δ/g; s/\\omega/ω/g; s/\\phi/φ/g; s/\\nabla/∇/g
        s/\\theta/θ/g; s/\\eta/η/g; s/\\beta/β/g; s/\\varepsilon/ε/g; s/\\sigma/σ/g; s/\\tau/τ/g
        s/\\lambda/λ/g; s/\\pi([^a-z]|$)/π\1/g; s/\\varphi/φ/g; s/\\ell/ℓ/g; s/\\partial/∂/g; s/\\sum/Σ/g
        s/\\cdot/·/g; s/\\odot/⊙/g; s/\\infty/∞/g; s/\\in\b/∈/g; s/\\le\b/≤/g; s/\\ge\b/≥/g
        s/\\hat *\{(.)\}/\1̂/g; s/\\hat +(.)/\1̂/g; s/\^(\{\\top\}|\\top)/ᵀ/g; s/\\sqrt\{(\w)\}/√\1/g
        s/\\sqrt\{(([^{}]|\{[^{}]*\})*)\}/√(\1)/g; s/\\t?frac\{(\w+)\}\{(\w+)\} */\1\/\2 /g
        s/\\t?frac\{(([^{}]|\{[^{}]*\})*)\}\{(([^{}]|\{[^{}]*\})*)\}/(\1)\/(\3)/g; s/([_^])\{([^{}])\}/\1\2/g; s/([_^])\{([^{}]*)\}/\1(\2)/g; s/\$([^$]+)\$/\1/g'
}
