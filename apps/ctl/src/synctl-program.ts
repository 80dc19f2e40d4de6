import { Argument, type Command, Option } from 'commander';
import { createCommand } from './program.js';
import type { Terminal } from './terminal.js';
import { startProcess, stopProcess } from './process-control/control.js';
import { managedProcesses } from './process-control/managed-processes.js';

interface Options {
  readonly worker?: string;
  readonly allProcesses?: string;
  readonly daemonize: boolean;
}

/** The `synctl` program: starts and stops servers that run in the background. */
export function createSynctl(terminal: Terminal): Command {
  return createCommand('synctl', terminal)
    .description(
      'Starts and stops a server that runs in the background. Its settings say in pid_file where its process id is kept.',
    )
    .addArgument(createActionArgument())
    .argument(
      '[configfile...]',
      'settings file of the main process (default: homeserver.yaml); settings files of workers behind it, or in its place: only these workers',
    )
    .addOption(
      new Option(
        '-w, --worker <file>',
        'only the worker with these settings, which come behind those of the main process',
      ).conflicts('allProcesses'),
    )
    .option(
      '-a, --all-processes <folder>',
      'the main process and each worker whose settings lie in this folder (*.yaml)',
    )
    .option('--no-daemonize', 'stay with the process that is started, in the foreground')
    .action(async (action: 'start' | 'stop' | 'restart', files: string[], options: Options) => {
      const processes = managedProcesses(files, options);
      // Workers need the main process: they end before it and begin after it.
      if (action !== 'start') for (const one of processes.toReversed()) await stopProcess(one, terminal);
      if (action !== 'stop') for (const one of processes) await startProcess(one, options.daemonize, terminal);
    });
}

const createActionArgument = (): Argument =>
  new Argument('<action>', 'what to do').choices(['start', 'stop', 'restart']);
