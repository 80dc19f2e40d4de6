import { Controller, Get } from '@nestjs/common';
import { Access, Who } from '@rookery/http';
import { callbackContext, ModuleDispatcher } from '@rookery/module-host';
import { Config, type Requester } from '@rookery/platform';
import { clientMediaPath, mediaPaths } from './media-paths.js';

/** What clients may know of the media repository. */
@Controller()
export class MediaConfigController {
  constructor(
    private readonly config: Config,
    private readonly modules: ModuleDispatcher,
  ) {}

  /** GET /_matrix/client/v1/media/config */
  @Get([clientMediaPath('/config'), ...mediaPaths('/config')])
  @Access({ auth: 'required' })
  async read(@Who() requester: Requester): Promise<object> {
    if (this.modules.has('getMediaConfigForUser')) {
      const own = await this.modules.provide('getMediaConfigForUser', callbackContext(requester), requester.userId);
      if (own !== undefined) return own;
    }
    return { 'm.upload.size': this.config.get('max_upload_size') };
  }
}
