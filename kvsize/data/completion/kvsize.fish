# Completion of kvsize in fish. Put it where fish looks for it:
#   kvsize completion fish > ~/.config/fish/completions/kvsize.fish

function __kvsize_complete
    set -l line (commandline -cp | string collect)
    set -l program (commandline -opc)[1]
    for each in (_KVSIZE_COMPLETE=$line $program 2>/dev/null)
        if string match -q ':files*' -- $each
            __fish_complete_path (commandline -ct)
        else
            printf '%s\n' $each
        end
    end
end

complete -c kvsize -f -a '(__kvsize_complete)'
