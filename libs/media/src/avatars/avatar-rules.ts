import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import { MatrixError } from '@rookery/matrix-types';
import { Config } from '@rookery/platform';
import { UserHooks } from '@rookery/users';
import { parseMxc } from '../records/media.js';
import { findMedia } from '../records/media.query.js';

/** Holds avatars to the settings `max_avatar_size` and `allowed_avatar_mimetypes`. */
@Injectable()
export class AvatarRules implements OnModuleInit {
  constructor(
    private readonly config: Config,
    private readonly database: Database,
    private readonly hooks: UserHooks,
  ) {}

  onModuleInit(): void {
    this.hooks.profileChanged.subscribe({
      prepare: async ({ fields, after, deactivation }) => {
        if (!deactivation && fields.includes('avatar_url')) await this.check(after.avatar_url);
      },
    });
  }

  /**
   * Whether a file may be an avatar. Without such settings everything may.
   * @throws MatrixError 403 `M_FORBIDDEN`: too large, of another kind, or not known here
   */
  async check(uri: string | undefined): Promise<void> {
    const maxBytes = this.config.get('max_avatar_size');
    const types = this.config.get('allowed_avatar_mimetypes');
    if (uri === undefined || uri === '' || (maxBytes == null && types == null)) return;
    const key = parseMxc(uri, this.config.serverName);
    const media = key && (await findMedia(this.database, key));
    if (media?.sizeBytes === undefined) throw MatrixError.forbidden('The avatar is no file that this server knows');
    if (maxBytes != null && media.sizeBytes > maxBytes)
      throw MatrixError.forbidden(`Avatars may be no larger than ${maxBytes} bytes`);
    const type = (media.mediaType.split(';', 1)[0] ?? '').trim().toLowerCase();
    if (types != null && !types.some((allowed) => allowed.toLowerCase() === type))
      throw MatrixError.forbidden('Avatars may not be of this type');
  }
}
