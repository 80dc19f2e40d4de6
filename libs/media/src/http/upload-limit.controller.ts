import { Controller, Get } from '@nestjs/common';
import { Access, HttpReply } from '@rookery/http';
import { Pages } from '@rookery/templates';
import { uploadLimitPage } from '../uploads/upload-limits.js';

/** What users are told of limits of uploads: the template `media_upload_limit_exceeded.html`. */
@Controller()
export class UploadLimitController {
  constructor(private readonly pages: Pages) {}

  /** GET /_synapse/client/media_upload_limit_exceeded */
  @Get(uploadLimitPage)
  @Access({ auth: 'none' })
  show(): HttpReply {
    return HttpReply.page(200, this.pages.page('media_upload_limit_exceeded.html'));
  }
}
