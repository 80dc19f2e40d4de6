import { connect, createServer, type Server, type Socket } from 'node:net';

/** A line from one process to a server of another kind, which can be cut in the two ways that lines are. */
export class Line {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  readonly #owed: (() => void)[] = [];
  #state: 'up' | 'broken' | 'silent' = 'up';

  private constructor(server: Server, to: () => number) {
    this.#server = server;
    server.on('connection', (near) => {
      near.on('error', () => {});
      if (this.#state === 'broken') return void near.destroy();
      const far = connect(to(), '127.0.0.1');
      far.on('error', () => {});
      for (const [from, other] of [
        [near, far],
        [far, near],
      ] as const) {
        this.#sockets.add(from);
        from.on('data', (chunk: Buffer) => void other.write(chunk));
        from.on('close', () => {
          this.#sockets.delete(from);
          this.#whenHeard(() => other.destroySoon());
        });
        if (this.#state === 'silent') from.pause();
      }
    });
  }

  /** @param to called for each connection: the port where it leads to */
  static async open(to: () => number): Promise<Line> {
    const server = createServer();
    const line = new Line(server, to);
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    return line;
  }

  get port(): number {
    const address = this.#server.address();
    return typeof address === 'object' && address !== null ? address.port : 0;
  }

  /** Ends all connections, and takes none. */
  break(): void {
    this.#state = 'broken';
    for (const socket of this.#sockets) socket.destroy();
  }

  /** Nothing comes through any more, and nobody is told; what is said meanwhile arrives with {@link mend}. */
  silence(): void {
    this.#state = 'silent';
    for (const socket of this.#sockets) socket.pause();
  }

  mend(): void {
    this.#state = 'up';
    for (const socket of this.#sockets) socket.resume();
    for (const tell of this.#owed.splice(0)) tell();
  }

  close(): void {
    this.break();
    this.#server.close();
  }

  #whenHeard(tell: () => void): void {
    if (this.#state === 'silent') this.#owed.push(tell);
    else tell();
  }
}
