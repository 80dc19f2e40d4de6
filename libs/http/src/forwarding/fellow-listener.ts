import { type Logger, processProtocol, tooFarApart, understands } from '@rookery/platform';
import { timingSafeEqual } from 'node:crypto';
import type { RequestListener } from 'node:http';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { createServer as createTlsServer, type TlsOptions } from 'node:tls';
import { listen } from '../listeners.js';
import type { PassedHead, ProcessAddress } from './fellow-connection.js';
import { frameKinds, FrameSocket, type OnFrame, readHead } from './frames.js';
import { PassedCall } from './passed-request.js';

/** How long whoever connects may take to say who it is, milliseconds. */
const helloLimitMs = 10_000;

/** Compares in a time that tells nothing but the length. */
const isSame = (given: Buffer, wanted: Buffer): boolean =>
  given.length === wanted.length && timingSafeEqual(given, wanted);

/** Takes what other processes of the server pass on, as requests that came in here. */
export class FellowListener {
  readonly #open = new Map<Socket, FrameSocket>();
  readonly #server: Server;
  readonly #secret: Buffer;
  #address: ProcessAddress | undefined;

  private constructor(
    secret: string,
    tls: TlsOptions | undefined,
    private readonly handler: RequestListener,
    private readonly logger: Logger,
  ) {
    const options = { noDelay: true, keepAlive: true, keepAliveInitialDelay: 1_000 };
    const take = (socket: Socket): void => this.#serve(socket);
    this.#server = tls === undefined ? createServer(options, take) : createTlsServer({ ...options, ...tls }, take);
    this.#secret = Buffer.from(secret);
  }

  /**
   * @param secret known to the processes alone
   * @param tls where they encrypt what they say
   * @param handler takes each request
   * @throws ListenError
   */
  static async open(
    { host, port }: ProcessAddress,
    secret: string,
    tls: TlsOptions | undefined,
    handler: RequestListener,
    logger: Logger,
  ): Promise<FellowListener> {
    const listener = new FellowListener(secret, tls, handler, logger);
    const server = listener.#server;
    await listen(server, { host, port, backlog: 1024 }, `${host}:${port}`);
    server.on('error', (err) => logger.error('The listener for other processes failed', { err }));
    const bound = server.address() as AddressInfo;
    const { address, port: boundPort } = bound;
    listener.#address = { host: address, port: boundPort, protocol: processProtocol, ...(tls && { tls: true }) };
    return listener;
  }

  /** Where it listens. */
  get address(): ProcessAddress {
    if (this.#address === undefined) throw new Error('It does not listen');
    return this.#address;
  }

  /** Takes no more requests; those that are under way go on. */
  stopAccepting(): void {
    this.#server.close(() => undefined);
    for (const frames of this.#open.values()) frames.send(frameKinds.farewell, 0);
  }

  /** Ends every connection. */
  destroy(): void {
    this.#server.close(() => undefined);
    for (const socket of this.#open.keys()) socket.destroy();
  }

  #serve(socket: Socket): void {
    const calls = new Map<number, PassedCall>();
    const onFrame: OnFrame = (kind, number, isLast, payload) => {
      if (frames.isKnown) return this.#take(frames, calls, kind, number, isLast, payload);
      const problem = this.#problemWith(kind, payload);
      if (problem === undefined) {
        frames.isKnown = true;
        socket.setTimeout(0);
        return;
      }
      this.logger.warn(problem, { address: socket.remoteAddress });
      socket.destroy();
    };
    const frames = new FrameSocket(socket, onFrame, false);
    this.#open.set(socket, frames);
    socket.setTimeout(helloLimitMs, () => socket.destroy());
    socket.on('error', (err) => this.logger.debug('The connection of another process failed', { err }));
    socket.on('close', () => {
      this.#open.delete(socket);
      for (const call of calls.values()) call.end();
    });
  }

  /** What is wrong with how somebody begins. */
  #problemWith(kind: number, payload: Buffer): string | undefined {
    const space = payload.indexOf(' ');
    if (kind !== frameKinds.hello || !isSame(payload.subarray(space + 1), this.#secret))
      return 'Somebody who is no process of this server connected to where they listen';
    const version = Number(payload.toString('latin1', 0, space));
    if (understands(version)) return undefined;
    return `Another process cannot pass requests on to this one: ${tooFarApart(processProtocol, version)}`;
  }

  #take(
    frames: FrameSocket,
    calls: Map<number, PassedCall>,
    ...[kind, number, isLast, payload]: Parameters<OnFrame>
  ): void {
    if (kind === frameKinds.head) {
      const { head, body } = readHead(payload);
      const call = new PassedCall(frames, number, head as PassedHead, isLast ? body : undefined, () =>
        calls.delete(number),
      );
      calls.set(number, call);
      try {
        call.begin(this.handler);
      } catch (err) {
        // Others go by the same connection.
        this.logger.error('A request that another process passed on could not be begun', { err });
        call.end();
      }
      return;
    }
    const call = calls.get(number);
    // Answered, or given up.
    if (call === undefined) return;
    if (kind === frameKinds.part) call.part(payload, isLast);
    else if (kind === frameKinds.taken) call.taken(payload);
    else if (kind === frameKinds.cancel) call.end();
    else throw new Error(`There are no frames of kind ${kind}`);
  }
}
