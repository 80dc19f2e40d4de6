import type { ProcessAddress } from '@rookery/http';
import type { Bus, Leases, Rpc, Sharing } from '@rookery/replication';

/**
 * A process among others that share a database. One of them writes; the others answer what only reads, and pass on everything
 * else to it. A process keeps its place as long as its server runs: to take another, it starts anew.
 */
export interface ProcessPlace {
  /** Unique among the processes. */
  readonly name: string;
  /** Name of the process that writes. */
  readonly writer: string;
  readonly bus: Bus;
  readonly rpc: Rpc;
  /** Whether it may write what any process may, beside the one that writes all else. */
  readonly sharing?: Sharing | undefined;
  /** By which the processes share duties. */
  readonly leases: Leases;
  /** Known to the processes alone. */
  readonly secret: string;
  /** By which the database knows its connections, so that it cannot write once another has its place (`ProcessRegistry`). */
  readonly processNumber?: number | undefined;
  /** Several processes of this machine listen on the same port. */
  readonly sharesPorts?: boolean | undefined;
  /** Where the process that writes listens for the others; port 0 lets the system choose. */
  readonly listen: ProcessAddress;
  /** Where the process that writes is; nothing while there is none. */
  readonly writerAddress: () => Promise<ProcessAddress | undefined>;
}

/** Whether a process does not write: another one does. */
export const isBesideWriter = (place: ProcessPlace | undefined): boolean =>
  place !== undefined && place.name !== place.writer;
