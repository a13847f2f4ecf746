#compdef kvsize
# Completion of kvsize in zsh. Put this line into ~/.zshrc, after compinit:
#   eval "$(kvsize completion zsh)"

_kvsize() {
    local line="${(j: :)words[1,CURRENT-1]} ${PREFIX}" value help files=
    local -a values shown open open_shown
    while IFS=$'\t' read -r value help; do
        if [[ $value == :files ]]; then
            files=1
        elif [[ $value == *= ]]; then
            open+=("$value") open_shown+=("$value${help:+  -- $help}")
        else
            values+=("$value") shown+=("$value${help:+  -- $help}")
        fi
    done < <(_KVSIZE_COMPLETE="$line" "${words[1]/#\~/$HOME}" 2>/dev/null)
    local -a any_case=(-M 'm:{[:lower:][:upper:]}={[:upper:][:lower:]}')
    (( $#values )) && compadd $any_case -Q -d shown -a values
    (( $#open )) && compadd $any_case -Q -S '' -l -d open_shown -a open
    [[ -n $files ]] && _files
    return 0
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _kvsize "$@"
else
    compdef _kvsize kvsize
fi
