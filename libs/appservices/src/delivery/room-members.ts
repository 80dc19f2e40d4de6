import type { Registration } from '../registration/registration.js';

const none: ReadonlyMap<Registration, number> = new Map();

/** The joined local users of a room in whom a service is interested, counted by service. */
export class RoomMembers {
  readonly #users = new Set<string>();
  readonly #counts = new Map<Registration, number>();

  /** @param users everybody of this server who is in the room */
  constructor(
    private readonly servicesOf: (userId: string) => readonly Registration[],
    users: Iterable<string>,
  ) {
    for (const userId of users) this.change(userId, true);
  }

  get users(): ReadonlySet<string> {
    return this.#users;
  }
  get size(): number {
    return this.#users.size;
  }

  /** Somebody is in the room now, or is not. */
  change(userId: string, isIn: boolean): void {
    const services = this.servicesOf(userId);
    if (services.length === 0 || this.#users.has(userId) === isIn) return;
    if (isIn) this.#users.add(userId);
    else this.#users.delete(userId);
    for (const one of services) this.#counts.set(one, (this.#counts.get(one) ?? 0) + (isIn ? 1 : -1));
  }

  /** @param more how many users of a service are to be counted besides, or less where negative */
  services(more: ReadonlyMap<Registration, number> = none): ReadonlySet<Registration> {
    const services = new Set<Registration>();
    for (const [one, count] of this.#counts) if (count + (more.get(one) ?? 0) > 0) services.add(one);
    for (const [one, count] of more) if (count + (this.#counts.get(one) ?? 0) > 0) services.add(one);
    return services;
  }
}
