import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import type { CallbackContext, MediaFileInfo } from '@rookery/module-api';
import { assertAllowed, ModuleDispatcher } from '@rookery/module-host';
import { isHashQuarantined } from '../records/media.query.js';
import type { StagedFile } from './staged-file.js';

/** Who withheld a file that equals one withheld before. */
const bySystem = 'system';

/** What every file goes through before it is stored, wherever it comes from. */
@Injectable()
export class MediaIntake {
  constructor(
    private readonly database: Database,
    private readonly modules: ModuleDispatcher,
  ) {}

  /**
   * Looks at a finished file.
   * @returns who withholds it from the start: it equals a file that is withheld; `undefined` for all others
   * @throws MatrixError what a module refuses it with
   */
  async inspect(
    staged: StagedFile,
    info: MediaFileInfo,
    mediaType: string,
    context: CallbackContext,
  ): Promise<string | undefined> {
    if (this.modules.has('checkMediaFileForSpam')) {
      const file = { sizeBytes: staged.sizeBytes, mediaType, stream: () => staged.read() };
      assertAllowed(await this.modules.gate('checkMediaFileForSpam', context, file, info));
    }
    return (await isHashQuarantined(this.database, staged.sha256)) ? bySystem : undefined;
  }

  /** Tells modules of a file that was stored. */
  stored(info: MediaFileInfo, uploader: string | undefined, sizeBytes: number, context: CallbackContext): void {
    if (this.modules.has('onMediaStored'))
      void this.modules.notify('onMediaStored', context, info, uploader, sizeBytes);
  }
}
