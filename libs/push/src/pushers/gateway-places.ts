import { KeyedSemaphore, Semaphore } from '@rookery/platform';

/** Places at a time. */
const altogether = 128;
/** More than there are connections to a gateway: while all of these are busy, what comes next is made ready. */
const perGateway = 32;
const perUser = 8;

/** Who wants a place. */
export interface PlaceWanted {
  readonly userId: string;
  /** Absent where it is not known yet. */
  readonly gateway?: string | undefined;
}

/**
 * Places of those who are about to ask push gateways: so many altogether, some of them for one gateway and few for one user, so that
 * neither a gateway that does not answer nor a user with many holds up the others. Whoever has to wait goes behind those who wait already.
 */
export class GatewayPlaces {
  readonly #all = new Semaphore(altogether);
  readonly #ofGateways = new KeyedSemaphore(perGateway);
  readonly #ofUsers = new KeyedSemaphore(perUser);

  /**
   * Does work once there is a place, which is given back after it.
   * @throws what the work throws; the signal's reason when it aborts first
   */
  run<T>({ userId, gateway }: PlaceWanted, work: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    // What fewest wait for comes first: who waits for their own turn, or for a gateway, keeps nobody else waiting.
    const inAll = (): Promise<T> => this.#all.run(work, { signal });
    const atGateway =
      gateway === undefined ? inAll : (): Promise<T> => this.#ofGateways.run(gateway, inAll, { signal });
    return this.#ofUsers.run(userId, atGateway, { signal });
  }
}
