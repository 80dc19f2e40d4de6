import { Controller, Get } from '@nestjs/common';
import { Access, Inbound, type InboundRequest, queryInteger, requiredQueryString, Who } from '@rookery/http';
import type { Requester } from '@rookery/platform';
import { clientMediaPath, mediaPaths } from './media-paths.js';
import { Previews } from '../previews/preview.service.js';

/** Previews of links. */
@Controller()
export class PreviewController {
  constructor(private readonly previews: Previews) {}

  /** GET /_matrix/client/v1/media/preview_url */
  @Get([clientMediaPath('/preview_url'), ...mediaPaths('/preview_url')])
  @Access({ auth: 'required' })
  preview(@Who() requester: Requester, @Inbound() request: InboundRequest): Promise<object> {
    const url = requiredQueryString(request, 'url');
    return this.previews.preview(requester, url, queryInteger(request, 'ts'));
  }
}
