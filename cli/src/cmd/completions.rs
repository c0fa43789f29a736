//! `trine completions` prints a shell's script, which is made from the options themselves.

use clap::Args;
use clap_complete::Shell;
use trine_base::failure::Failure;
use trine_base::output::Output;
use trine_server::logs::LEVELS;

#[derive(Debug, Args)]
pub(crate) struct CompletionsArguments {
    /// The shell that reads the script.
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

pub(crate) fn run(
    arguments: &CompletionsArguments,
    mut definition: clap::Command,
    output: Output,
) -> Result<(), Failure> {
    output.require_text("a script of completions")?;
    let lists = lists(&definition);
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut definition, "trine", &mut script);
    if arguments.shell == Shell::Bash {
        script = with_lists(script, &lists);
    }
    output.raw(&script);
    Ok(())
}

/// The words of each option that takes several of them, with commas between.
fn lists(definition: &clap::Command) -> Vec<Vec<String>> {
    let of_one = |arg: &clap::Arg| {
        let values = arg.get_possible_values();
        let words: Vec<String> = values.iter().map(|v| v.get_name().to_owned()).collect();
        (arg.get_value_delimiter() == Some(',') && !words.is_empty()).then_some(words)
    };
    let mut lists = vec![LEVELS.map(str::to_owned).to_vec()];
    lists.extend(definition.get_arguments().filter_map(of_one));
    lists.extend(definition.get_subcommands().flat_map(self::lists));
    lists
}

/// The generator completes the first word of a list alone. In bash the words behind a comma are completed too.
fn with_lists(script: Vec<u8>, lists: &[Vec<String>]) -> Vec<u8> {
    let mut script = String::from_utf8(script).expect("a script is text");
    for words in lists {
        let words = words.join(" ");
        let one = format!(r#"COMPREPLY=($(compgen -W "{words}" -- "${{cur}}"))"#);
        let each = format!(
            r#"local head=""; [[ "${{cur}}" == *,* ]] && head="${{cur%,*}},"; COMPREPLY=($(compgen -P "${{head}}" -W "{words}" -- "${{cur##*,}}"))"#
        );
        script = script.replace(&one, &each);
    }
    script.into_bytes()
}
