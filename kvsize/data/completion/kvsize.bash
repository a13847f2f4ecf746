# Completion of kvsize in bash. Put this line into ~/.bashrc:
#   eval "$(kvsize completion bash)"

_kvsize() {
    local line="${COMP_LINE:0:COMP_POINT}" value help
    local typed="${line##*[[:space:]]}" cut=""
    # Readline replaces only what follows the last of its word breaks, of which a word may have some.
    local breaks="${COMP_WORDBREAKS//[^=:@]/}"
    if [[ -n $breaks ]]; then
        local rest="${typed##*[$breaks]}"
        cut="${typed%"$rest"}"
    fi
    COMPREPLY=()
    while IFS=$'\t' read -r value help; do
        # Nothing to offer means file names here: see `-o default` below.
        [[ $value == :files ]] || COMPREPLY+=("${value:${#cut}}")
    done < <(_KVSIZE_COMPLETE="$line" "${1/#\~/$HOME}" 2>/dev/null)
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]]; then
        compopt -o nospace 2>/dev/null
    fi
}

complete -o default -F _kvsize kvsize
