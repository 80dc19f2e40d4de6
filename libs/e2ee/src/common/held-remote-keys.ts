import type { HeldBytes } from '@rookery/http';
import type { KeyRoom } from '../ports.js';

/** What one request holds of other servers' keys while it collects them: nobody makes this one hold them without bound. */
export class HeldRemoteKeys {
  #takenBytes = 0;
  #isOver = false;

  /** @param holder who asks: what several requests hold counts together */
  constructor(
    private readonly held: HeldBytes,
    private readonly holder: string,
  ) {}

  /** Room for a part of it, of so many bytes. It is gone with the {@link end}: an answer that comes later is not kept. */
  roomOf(maxBytes: number): KeyRoom {
    let ownBytes = maxBytes;
    const { held, holder } = this;
    const leftBytes = (): number => {
      const { ofHolder, altogether } = held.limits;
      return this.#isOver ? 0 : Math.min(ownBytes, ofHolder - held.of(holder), altogether - held.altogether);
    };
    return {
      get leftBytes() {
        return leftBytes();
      },
      take: (bytes) => {
        if (bytes > leftBytes()) return false;
        held.add(holder, bytes);
        this.#takenBytes += bytes;
        ownBytes -= bytes;
        return true;
      },
    };
  }

  /** Nothing is collected any more. */
  end(): void {
    this.#isOver = true;
    this.held.give(this.holder, this.#takenBytes);
  }
}
