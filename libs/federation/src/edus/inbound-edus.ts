import { Injectable } from '@nestjs/common';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Clock, Logger, Metrics } from '@rookery/platform';

/** An EDU as it came in a transaction; its shape was checked, its content was not. */
export interface InboundEdu {
  readonly type: string;
  readonly content: JsonObject;
}

/**
 * Takes EDUs of one type. What it has done when it resolves is durable: the transaction is answered then, and its sender will
 * not send the EDU again. Throws a MatrixError for what is wrong with an EDU: that is logged, and nothing else happens to the
 * transaction. One that must arrive resolves to true where that has left something that lasts.
 * @param origin the server that sent it, and that its users must belong to
 * @param signal aborted when the time is up: what still happens then is nobody's wait any more
 */
export type EduHandler = (origin: string, content: JsonObject, signal: AbortSignal) => Promise<boolean | void> | void;

/** What came of the EDUs of a transaction. */
export interface Deliveries {
  /** Whether all that must arrive did. */
  readonly haveArrived: boolean;
  /** Whether any of those has left something that lasts. */
  readonly haveStored: boolean;
}

/** How long one EDU may take, milliseconds. */
const timeoutMs = 10_000;

/** `again`: it might work another time. */
type Outcome = 'again' | 'done' | 'stored';

interface Entry {
  readonly handler: EduHandler;
  readonly mustArrive: boolean;
}

/**
 * Where EDUs of other servers go: one handler per type. EDUs of a transaction are handled in their order, one after the other;
 * none of them can hold up the transaction for long, and only those that must arrive make their sender repeat it.
 * @spec server-server-api#edus
 */
@Injectable()
export class InboundEdus {
  readonly #handlers = new Map<string, Entry>();
  readonly #received;

  constructor(
    private readonly clock: Clock,
    private readonly logger: Logger,
    metrics: Metrics,
  ) {
    this.#received = metrics.counter('synapse_federation_server_received_edus');
  }

  /**
   * Names the handler of a type.
   * @param how `mustArrive`: what fails for no reason that the EDU gives is to come again; it may come twice then
   * @throws Error when there is one already
   */
  register(type: string, handler: EduHandler, { mustArrive = false }: { readonly mustArrive?: boolean } = {}): void {
    if (this.#handlers.has(type)) throw new Error(`There are two handlers of the EDU ${type}`);
    this.#handlers.set(type, { handler, mustArrive });
  }

  /** Hands over the EDUs of a transaction; types without a handler are passed over. Never rejects. */
  async deliver(origin: string, edus: readonly InboundEdu[]): Promise<Deliveries> {
    this.#received.inc({}, edus.length);
    let [haveArrived, haveStored] = [true, false];
    for (const { type, content } of edus) {
      const entry = this.#handlers.get(type);
      if (!entry) continue;
      const outcome = await this.#handle(entry.handler, origin, type, content);
      if (!entry.mustArrive) continue;
      if (outcome === 'again') haveArrived = false;
      if (outcome === 'stored') haveStored = true;
    }
    return { haveArrived, haveStored };
  }

  #handle(handler: EduHandler, origin: string, type: string, content: JsonObject): Promise<Outcome> {
    const given = new AbortController();
    const report = (err: unknown): void => this.logger.warn('An EDU could not be handled', { origin, type, err });
    return new Promise((resolve) => {
      const timer = this.clock.after(timeoutMs, () => {
        given.abort();
        report(new Error(`It took longer than ${timeoutMs} ms`));
        resolve('again');
      });
      const work = async (): Promise<unknown> => handler(origin, content, given.signal);
      void work()
        .then(
          (stored) => resolve(stored === true ? 'stored' : 'done'),
          (error: unknown) => {
            report(error);
            resolve(MatrixError.is(error) && error.status < 500 && error.status !== 429 ? 'done' : 'again');
          },
        )
        .finally(() => timer.cancel());
    });
  }
}
