import { CommandError } from '../command-error.js';
import type { Terminal } from '../terminal.js';

/** Gathers an option that may be given several times. */
export const collect = (value: string, before: readonly string[] = []): string[] => [...before, value];

/** Asks until two answers agree, three times at most. */
export async function askTwice(terminal: Terminal): Promise<string> {
  for (let attempt = 0; attempt < 3; attempt++) {
    const password = await terminal.askSecret('Password');
    if (password === '') terminal.note('A password must not be empty.');
    else if (password !== (await terminal.askSecret('The same again'))) terminal.note('The two differ.');
    else return password;
  }
  throw new CommandError('No password given', 2);
}
