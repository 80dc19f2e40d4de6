import { readFileSync } from 'node:fs';
import { rootCertificates } from 'node:tls';
import type { Command } from 'commander';
import { fileProblem } from '@rookery/platform';
import { CommandError } from '../command-error.js';
import type { Terminal } from '../terminal.js';
import { showFindings } from './doctor/finding.js';
import { probeServer } from './doctor/server-probe.js';

interface Options {
  readonly ca?: string;
  readonly prefix: string;
  readonly json?: boolean;
}

/** `rookery federation check` */
export function registerFederationCommands(program: Command, terminal: Terminal): void {
  const federation = program.command('federation').description('Other servers.');
  federation
    .command('check <name>')
    .description(
      'Looks at a server, this one or another, as other servers see it: its name, delegation, every address, certificate and keys.',
    )
    .option('--ca <file>', 'believe these certificate authorities as well, PEM')
    .option('--prefix <prefix>', 'first part of the paths (protocol_prefix)', '_matrix')
    .option('--json', 'for programs')
    .action(async (name: string, { ca, prefix, json }: Options) => {
      const own = ca === undefined ? undefined : [...rootCertificates, certificatesIn(ca)].join('\n');
      const findings = await probeServer(name, { ca: own, prefix });
      if (json) terminal.out(JSON.stringify(findings, null, 2));
      else showFindings(name, findings, terminal);
      const wrong = findings.filter(({ level }) => level === 'error').length;
      if (wrong > 0) throw new CommandError(`Wrong: ${wrong}.`);
    });
}

/** @throws CommandError when the file cannot be read */
function certificatesIn(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    throw new CommandError(`${file} cannot be read: ${fileProblem(error)}`);
  }
}
