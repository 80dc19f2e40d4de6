/** Who is there and who has which lease, as far as this process knows. */
export interface LeaseView {
  readonly processes: readonly {
    /** Never given out twice. */
    readonly number: number;
    /** What it offered ({@link Leases.offer}). */
    readonly roles: readonly string[];
  }[];
  /** Numbers of the holders by the names of the leases. */
  readonly leases: ReadonlyMap<string, number>;
}

/** The leases of a server's processes, which one of them has at a time. The database's `ProcessRegistry` is one. */
export interface Leases {
  /** Of this process. */
  readonly number: number;
  readonly view: LeaseView;
  /** Whether nobody else has what this process took, as far as it can know. */
  readonly isTrusted: boolean;
  /** Calls `listener` with each view, unchanged ones included; returns how to stop that. */
  onView(listener: (view: LeaseView) => void): () => void;
  /** Says which roles this process can take. */
  offer(roles: readonly string[]): Promise<void>;
  /** Takes those that are free. @returns which */
  acquire(names: readonly string[]): Promise<readonly string[]>;
  /** Gives some up, for somebody else to take. */
  release(names: readonly string[]): Promise<void>;
  /** Looks again: the view is new afterwards. Never rejects. */
  beat(): Promise<void>;
}

/** Name of the lease of the process that writes. */
export const writerLease = 'writer';
