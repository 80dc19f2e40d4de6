import { Readable } from 'node:stream';
import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import { callbackContext } from '@rookery/module-host';
import { Clock, Config, Ids, type Requester } from '@rookery/platform';
import { formatMxc } from '../records/media.js';
import { insertLocalMedia } from '../records/media.query.js';
import { placeOf } from '../storage/file-place.js';
import { MediaFiles } from '../storage/media-files.js';
import { MediaIntake } from '../storage/media-intake.js';
import { ImageEngine } from '../thumbnails/image-engine.js';
import type { Fetched } from './page-fetcher.js';
import { longestUrl } from './url-rules.js';

/** Keeps the images that previews show. */
@Injectable()
export class PreviewImages {
  constructor(
    private readonly config: Config,
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly ids: Ids,
    private readonly files: MediaFiles,
    private readonly intake: MediaIntake,
    private readonly engine: ImageEngine,
  ) {}

  /** @returns what a preview says of it @throws MatrixError for what is no image, is too large, or is refused */
  async keep(requester: Requester, fetched: Fetched): Promise<{ og: JsonObject; mediaId: string }> {
    const { bytes } = fetched;
    // By its contents, whatever the answer says of it.
    const { type, widthPx, heightPx } = await this.engine.describe(bytes);
    const now = this.clock.nowMs();
    const mediaId = `${new Date(now).toISOString().slice(0, 10)}_${this.ids.letters(16)}`;
    const urlCache = fetched.url.href.slice(0, longestUrl);
    const place = placeOf({ origin: undefined, fileId: mediaId, urlCache });
    const context = callbackContext(requester);
    const staged = await this.files.stage();
    try {
      const tooLarge = (): MatrixError => MatrixError.tooLarge('The image is too large');
      await staged.writeAll(Readable.from([bytes]), this.clock, {
        maxBytes: this.config.get('max_spider_size'),
        tooLarge,
      });
      await staged.finish();
      await this.intake.inspect(staged, place.info, type, context);
      await this.files.keep(staged, place);
      await this.database.write(
        (tx) =>
          insertLocalMedia(tx, {
            mediaId,
            mediaType: type,
            sizeBytes: bytes.length,
            uploadName: undefined,
            createdTs: now,
            uploader: undefined,
            authenticated: this.config.get('enable_authenticated_media'),
            sha256: staged.sha256,
            urlCache,
          }),
        { name: 'store_preview_image' },
      );
    } catch (error) {
      await staged.discard();
      throw error;
    }
    const og: JsonObject = {
      'og:image': formatMxc(this.config.serverName, mediaId),
      'og:image:type': type,
      'og:image:width': widthPx,
      'og:image:height': heightPx,
      'matrix:image:size': bytes.length,
    };
    return { og, mediaId };
  }
}
