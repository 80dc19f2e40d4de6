import { Injectable } from '@nestjs/common';
import { Port } from '@rookery/platform';

/** A picture that a provider has of somebody. */
export interface Picture {
  readonly bytes: Uint8Array;
  readonly contentType: string;
}

/** Stores a picture for a user of ours. @returns its `mxc:` URI */
export type PictureStore = (userId: string, picture: Picture) => Promise<string>;

/** What this lib needs of those above it. */
@Injectable()
export class SsoPorts {
  /** Where pictures are kept; a server without a media repository keeps none. */
  readonly pictures = new Port<PictureStore>('provider_pictures', 'optional');
}
