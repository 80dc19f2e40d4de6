import { createInterface, type Interface } from 'node:readline';
import { Writable } from 'node:stream';
import { CommandError } from './command-error.js';

/** Where commands write, and whom they ask. */
export interface Terminal {
  /** Results. */
  out(line: string): void;
  /** Remarks about the work, and failures. */
  note(line: string): void;
  /** Asks for a line; `initial` when it stays empty. @throws CommandError when there is nobody to answer */
  ask(question: string, initial?: string): Promise<string>;
  /** Asks for a line that is not shown. @throws CommandError when there is nobody to answer */
  askSecret(question: string): Promise<string>;
}

/** The process's own terminal. Lines piped in answer questions one after the other. */
export class ProcessTerminal implements Terminal {
  #lines: AsyncIterator<string> | undefined;
  #reader: Interface | undefined;
  #hidden = false;

  constructor() {
    for (const stream of [process.stdout, process.stderr]) stream.on('error', ignoreClosed);
  }

  out(line: string): void {
    process.stdout.write(`${line}\n`);
  }

  note(line: string): void {
    process.stderr.write(`${line}\n`);
  }

  async ask(question: string, initial?: string): Promise<string> {
    const answer = await this.#read(`${question}${initial === undefined ? '' : ` [${initial}]`}: `);
    return answer === '' ? (initial ?? '') : answer;
  }

  async askSecret(question: string): Promise<string> {
    this.#hidden = true;
    try {
      return await this.#read(`${question}: `);
    } finally {
      this.#hidden = false;
      process.stderr.write('\n');
    }
  }

  async #read(prompt: string): Promise<string> {
    process.stderr.write(prompt);
    if (!this.#reader) {
      // Written through ourselves, so that what is typed at a secret question stays invisible.
      const echo = new Writable({
        write: (chunk: Buffer, _encoding, done) => {
          if (!this.#hidden) process.stderr.write(chunk);
          done();
        },
      });
      this.#reader = createInterface({ input: process.stdin, output: echo, terminal: process.stdin.isTTY === true });
      this.#reader.on('SIGINT', () => process.exit(130));
      this.#lines = this.#reader[Symbol.asyncIterator]();
    }
    const next = await this.#lines?.next();
    if (!next || next.done) throw new CommandError('There is no answer: the input has ended', 2);
    return next.value;
  }

  /** Lets the process end. */
  close(): void {
    this.#reader?.close();
  }
}

/** Who reads along may have seen enough (`rookery backup | head -1`): what is at work is done all the same. */
function ignoreClosed(error: NodeJS.ErrnoException): void {
  if (error.code !== 'EPIPE') throw error;
}
