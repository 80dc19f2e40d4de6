import { connect, createServer, type Server, type Socket } from 'node:net';
import { testPostgresUrl } from './test-database.js';

/** What is done with a connection once a message of the client has come by. */
export type LineFault = 'cut before' | 'cut behind' | 'cut after the answer';

/** A line to the tests' PostgreSQL that can be cut. Looks at what clients say, not at what the server answers. */
export class PostgresLine {
  readonly #server: Server;
  readonly #clients = new Set<Socket>();
  #fault: { readonly fault: LineFault; readonly text: string; readonly then: () => void } | undefined;
  /** Texts of statements that are sent by name once the server keeps them. */
  readonly #named = new Map<string, string>();
  #down: 'silent' | 'refusing' | undefined;

  private constructor(server: Server) {
    this.#server = server;
  }

  static async open(): Promise<PostgresLine> {
    const server = createServer();
    const line = new PostgresLine(server);
    const { hostname, port } = new URL(testPostgresUrl());
    server.on('connection', (client) => {
      client.on('error', () => {});
      if (line.#down !== undefined) return line.#refuse(client);
      const far = connect(Number(port), hostname);
      line.#clients.add(client);
      client.on('close', () => {
        line.#clients.delete(client);
        far.destroy();
      });
      far.on('error', () => {}).on('close', () => client.destroy());
      far.on('data', (chunk) => client.write(chunk));
      client.on('data', (chunk) => line.#pass(chunk, client, far));
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    return line;
  }

  get port(): number {
    const address = this.#server.address();
    return typeof address === 'object' && address !== null ? address.port : 0;
  }

  /**
   * Once: the next message with these words meets with the fault.
   * @param then called in that moment
   */
  breakAt(text: string, fault: LineFault, then: () => void = () => {}): void {
    this.#fault = { text, fault, then };
  }

  /** Cuts every connection and lets none through: it is closed at once, or told that the server has too many. */
  goDown(how: 'silent' | 'refusing'): void {
    this.#down = how;
    for (const client of this.#clients) client.destroy();
  }

  comeBack(): void {
    this.#down = undefined;
  }

  close(): void {
    this.#server.close();
  }

  /** Where a statement with a text is sent, with the text or by its name; `Infinity` where it is not. `COMMITTED` is no `COMMIT`. */
  #find(chunk: Buffer, text: string): number {
    const isThere = new RegExp(`${text}(?![A-Za-z])`);
    const names = [...this.#named].filter(([, statement]) => isThere.test(statement)).map(([name]) => `\0${name}\0`);
    const places = [chunk.toString('latin1').search(isThere), ...names.map((name) => chunk.indexOf(name))];
    return Math.min(...places.filter((place) => place >= 0), Infinity);
  }

  #refuse(client: Socket): void {
    if (this.#down === 'silent') return void client.destroy();
    const fields = 'SFATAL\0C53300\0Msorry, too many clients already\0\0';
    const answer = Buffer.alloc(5 + fields.length);
    answer.write('E');
    answer.writeInt32BE(4 + fields.length, 1);
    answer.write(fields, 5);
    client.once('data', () => client.end(answer));
  }

  #pass(chunk: Buffer, client: Socket, far: Socket): void {
    for (const [, name, text] of chunk.toString('latin1').matchAll(/(rk\d+)\0([^\0]+)\0/g))
      this.#named.set(name!, text!);
    const at = this.#fault ? this.#find(chunk, this.#fault.text) : Infinity;
    if (!this.#fault || at === Infinity) return void far.write(chunk);
    const { fault, then } = this.#fault;
    this.#fault = undefined;
    if (fault === 'cut before') {
      // What lies before the text in the same packet arrives, cut anywhere.
      far.write(chunk.subarray(0, at), () => client.destroy());
    } else if (fault === 'cut behind') {
      far.removeAllListeners('data');
      client.removeAllListeners('close');
      this.#clients.delete(client);
      client.destroy();
      far.write(chunk);
      // The server does its work before it hears that nobody listens any more, however slow it is.
      let [answered, waited] = [false, false];
      const part = (): void => void (answered && waited && far.destroy());
      far.on('data', () => ((answered = true), part()));
      setTimeout(() => ((waited = true), part()), 100);
      setTimeout(() => far.destroy(), 3_000).unref();
    } else {
      far.removeAllListeners('data');
      far.write(chunk);
      far.once('data', () => client.destroy());
    }
    then();
  }
}
